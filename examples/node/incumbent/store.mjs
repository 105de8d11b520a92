// etcd: what the elector asks, as etcd's requests; what etcd answers, as the elector's types.

import { Access } from './access.mjs';
import { objection } from './diagnosis.mjs';
import { ElectionError, sentence } from './errors.mjs';
import { Member, withToken } from './member.mjs';

/**
 * @import { CallOptions } from '@grpc/grpc-js'
 * @import { Etcd3 } from 'etcd3'
 * @import { Credentials } from './access.mjs'
 * @import { Change, Failure, Guard, Mutation, Operation, Response, Selection, Watch }
 *   from '../component/interfaces/incumbent-election-types.js'
 */

/** @typedef {{ tag: 'ok', val: Response } | { tag: 'err', val: Failure }} Outcome */

const SECOND = 1_000_000_000n;
/** How long etcd may take to open a watch, or for a first answer, in milliseconds. */
const OPENING = 5_000;

/** A connection to etcd: to one member, until it fails. */
export class Store {
  #access;
  #members;
  /** Which of them is asked: it counts on with each that fails. */
  #turn;
  /** How long the lease lives, as etcd said last, in milliseconds. */
  #lifetime = 0;

  /**
   * @param {string} url `etcd://HOST:PORT[,HOST:PORT…][/PREFIX]`, or `etcds://…`
   * @param {Credentials} [credentials]
   */
  constructor(url, credentials) {
    const access = new Access(url, credentials);
    this.#access = access;
    this.#members = access.hosts.map((host) => new Member(host, access));
    // Sessions spread.
    this.#turn = Math.floor(Math.random() * this.#members.length);
  }

  get #member() {
    return /** @type {Member} */ (this.#members[this.#turn % this.#members.length]);
  }

  /**
   * Has the next member asked from now on, unless that has happened.
   *
   * @param {number} turn in which there was no answer
   */
  #passOn(turn) {
    if (turn === this.#turn) this.#turn += 1;
  }

  /** Makes sure that etcd answers and accepts us. */
  async probe() {
    /** @type {ElectionError | undefined} */
    let refusal;
    for (let left = this.#members.length; ; left -= 1) {
      const member = this.#member;
      try {
        await member.request(OPENING / this.#members.length, (etcd, options) => (
          etcd.kv.range(this.#nothing, options)));
        return;
      } catch (error) {
        // This key is forbidden, but etcd answers and knows us.
        if (/permission denied/.test(/** @type {Error} */ (error).message)) return;
        this.#passOn(this.#turn);
        // A member that refuses tells more than one that does not answer.
        refusal ??= await this.#refusal(member, /** @type {Error} */ (error));
        if (left > 1) continue;
        if (refusal) throw refusal;
        const { message } = /** @type {Error} */ (error);
        const why = /Last error: (?:Error: )?(.*?)\. /.exec(message)?.[1] ?? message;
        throw new ElectionError('unreachable', `no etcd answers at ${this.#access.url} (${why}): is it running there?`);
      }
    }
  }

  /**
   * Explains why a member refuses us; `undefined` if it does not answer.
   *
   * @param {Member} member
   * @param {Error} error
   */
  async #refusal({ host }, error) {
    if (error instanceof ElectionError) return error;
    const refusal = failure(error);
    let why;
    if (refusal.tag === 'denied') {
      why = /user name is empty/.test(refusal.val)
        ? 'it wants a user: give `user` and `passwordFile`'
        : `${refusal.val}: check \`user\` and \`passwordFile\``;
    } else if (refusal.tag === 'unavailable') {
      why = await objection(host, this.#access);
    }
    return why === undefined ? undefined : new ElectionError('unreachable', `${host} refuses the connection: ${why}`, error);
  }

  /** Reads nothing, at a key that every user of this store may read if any key at all. */
  get #nothing() {
    return { key: named(this.#access.prefix), count_only: true };
  }

  /**
   * A key as it is now.
   *
   * @param {Uint8Array} key
   */
  async get(key) {
    const order = /** @type {const} */ ('oldest-first');
    const selection = { key, prefix: false, order, limit: 1, keysOnly: false };
    for (let left = this.#members.length; ; left -= 1) {
      const outcome = await this.ask({ tag: 'read', val: [selection] }, OPENING / this.#members.length);
      if (outcome.tag === 'ok' && outcome.val.tag === 'snapshot') return outcome.val.val.found[0]?.[0];
      // A read may be sent twice.
      if (left > 1) continue;
      const why = outcome.tag === 'err' ? sentence(outcome.val) : outcome.val.tag;
      throw new ElectionError('unreachable', `${Buffer.from(key)} cannot be read at ${this.#access.url}: ${why}`);
    }
  }

  /**
   * One operation of the elector's, answered once.
   *
   * @param {Operation} operation
   * @param {number} timeout how long to wait for the answer, in milliseconds
   * @returns {Promise<Outcome>}
   */
  async ask(operation, timeout) {
    const turn = this.#turn;
    const timer = setTimeout(() => this.#passOn(turn), timeout);
    // A renewal's answer counts for as long as the lease can live, and not only for so long.
    const within = operation.tag === 'keep-alive' ? Math.max(timeout, this.#lifetime) : timeout;
    try {
      return { tag: 'ok', val: await this.#answer(operation, within) };
    } catch (error) {
      const outcome = answeredByError(operation, /** @type {Error} */ (error));
      if (outcome.tag === 'err' && isSilence(outcome.val)) this.#passOn(turn);
      return outcome;
    } finally {
      clearTimeout(timer);
    }
  }

  /**
   * @param {Operation} operation
   * @param {number} within in milliseconds
   * @returns {Promise<Response>}
   */
  async #answer(operation, within) {
    const member = this.#member;
    switch (operation.tag) {
      case 'grant': {
        const { lease, ttl } = operation.val;
        const seconds = (ttl + SECOND - 1n) / SECOND || 1n;
        const granted = await member.request(within, ({ leaseClient }, options) => (
          leaseClient.leaseGrant({ ID: `${lease}`, TTL: `${seconds}` }, options)));
        this.#lifetime = Number(granted.TTL) * 1_000;
        return { tag: 'granted', val: BigInt(granted.TTL) * SECOND };
      }
      case 'keep-alive': {
        // Without a login: etcd renews anybody's lease, and a login may take long.
        const ttl = await this.#renew(operation.val, { deadline: Date.now() + within });
        return ttl > 0n ? { tag: 'renewed', val: ttl * SECOND } : { tag: 'expired' };
      }
      case 'revoke':
        await member.request(within, ({ leaseClient }, options) => (
          leaseClient.leaseRevoke({ ID: `${operation.val}` }, options)));
        return { tag: 'revoked' };
      case 'claim': {
        const { key, value, lease } = operation.val;
        const name = this.#access.wire(key);
        const answer = await this.#transact({
          compare: [{ key: name, target: 'Create', create_revision: '0' }],
          success: [{ request_put: { key: name, value, lease: `${lease}` } }],
          failure: [{ request_range: { key: name } }],
        }, within);
        const at = BigInt(answer.header.revision);
        if (answer.succeeded) {
          return { tag: 'claimed', val: { entry: { key, value, lease, created: at, modified: at }, at } };
        }
        return { tag: 'taken', val: { entry: this.#entry(answer.responses[0].response_range.kvs[0]), at } };
      }
      case 'read':
        for (;;) {
          try {
            const snapshot = await member.request(within, ({ kv }, options) => (
              this.#snapshot(operation.val, kv, options)));
            return { tag: 'snapshot', val: snapshot };
          } catch (error) {
            // It was compacted in between, or another member was asked.
            if (!/required revision/.test(/** @type {Error} */ (error).message)) throw error;
          }
        }
      case 'guarded': {
        // One transaction in another tells a guard that does not hold from an expectation.
        const { guard, expect, mutations } = operation.val;
        const answer = await this.#transact({
          compare: this.#guards(guard),
          success: [{
            request_txn: {
              compare: expect.map(({ key, modified }) => (
                { key: this.#access.wire(key), target: 'Mod', mod_revision: `${modified}` })),
              success: mutations.map((mutation) => this.#change(guard.key, mutation)),
            },
          }],
        }, within);
        if (!answer.succeeded) return { tag: 'stale' };
        if (!answer.responses[0].response_txn.succeeded) return { tag: 'conflict' };
        return { tag: 'applied', val: BigInt(answer.header.revision) };
      }
    }
  }

  /**
   * All at one revision, and in no transaction: etcd 3.5.0 to 3.5.6 panic when one that reads is
   * given up while it is served (etcd#14110). The first one tells the revision.
   *
   * @param {Selection[]} selections
   * @param {Etcd3['kv']} kv
   * @param {CallOptions} options
   */
  async #snapshot(selections, kv, options) {
    /** @returns {Promise<any>} */
    const ask = (/** @type {object} */ one) => kv.range(/** @type {any} */ (one), options);
    // Nothing at all is read at a revision, too.
    const [first = this.#nothing, ...others] = selections.map((selection) => this.#range(selection));
    const answer = await ask(first);
    const { revision } = answer.header;
    // Any member that has the revision has the same.
    const rest = others.map((one) => ask({ ...one, revision, serializable: true }));
    const answers = [answer, ...await Promise.all(rest)].slice(0, selections.length);
    return { at: BigInt(revision), found: answers.map(({ kvs }) => kvs.map((/** @type {any} */ kv) => this.#entry(kv))) };
  }

  /**
   * @param {object} txn in etcd's own words
   * @param {number} within in milliseconds
   * @returns {Promise<any>}
   */
  #transact(txn, within) {
    return this.#member.request(within, ({ kv }, options) => kv.txn(/** @type {any} */ (txn), options));
  }

  /**
   * A stream for each attempt: etcd's answers to renewals carry no number, so that one which
   * is late could be taken for the next one's.
   *
   * @param {bigint} lease
   * @param {CallOptions} options
   * @returns {Promise<bigint>} the time to live in seconds
   */
  async #renew(lease, options) {
    const leases = /** @type {any} */ (this.#member.etcd.leaseClient); // its types lack the options
    const stream = await leases.leaseKeepAlive(options);
    return new Promise((resolve, reject) => {
      stream.on('data', (/** @type {any} */ answer) => resolve(BigInt(answer.TTL)));
      stream.on('error', reject);
      stream.on('end', () => reject(new Error('14 UNAVAILABLE: no answer')));
      stream.end({ ID: `${lease}` });
    });
  }

  /**
   * Watches, from now on or from a revision on, and tells of it until it is `ended`; a stream
   * that breaks is not mended: the elector watches again, and looks at what it missed.
   *
   * @param {Watch} watch
   * @param {(change: Change) => void} tell
   * @returns {() => void} ends it; nothing is told after that
   */
  watch({ key, prefix, since }, tell) {
    const turn = this.#turn;
    const member = this.#member;
    let login = member.login();
    let mayBeTheLogin = this.#access.user !== undefined;
    /** @type {any} */
    let stream;
    let over = false;
    const hangUp = () => {
      // etcd3 takes a stream that is cancelled before it ends for a failure of the connection.
      stream?.end();
      stream?.cancel();
      stream = undefined;
    };
    const close = () => {
      over = true;
      clearTimeout(timer);
      hangUp();
    };
    /** @param {Failure} failure */
    const end = (failure) => {
      if (over) return;
      // etcd 3.4 does not tell a login that has expired from a key that is not allowed.
      if (failure.tag === 'denied' && mayBeTheLogin) {
        mayBeTheLogin = false;
        hangUp();
        login = member.loggedInAgain(login);
        open();
        return;
      }
      close();
      if (isSilence(failure)) this.#passOn(turn);
      tell({ tag: 'ended', val: failure });
    };
    const timer = setTimeout(end, OPENING, { tag: 'timeout' });
    /** @param {any} news */
    const hear = (news) => {
      if (over) return;
      if (BigInt(news.compact_revision) > 0n) {
        end({ tag: 'compacted', val: BigInt(news.compact_revision) });
      } else if (news.canceled) {
        end(cancellation(news.cancel_reason));
      } else if (news.created) {
        clearTimeout(timer);
        const told = since === undefined ? BigInt(news.header.revision) : since - 1n;
        tell({ tag: 'started', val: told });
      }
      for (const { type, kv } of news.events) {
        if (type === 'Delete') {
          tell({ tag: 'deleted', val: { key: this.#access.own(kv.key), at: BigInt(kv.mod_revision) } });
        } else {
          tell({ tag: 'put', val: this.#entry(kv) });
        }
      }
    };
    const open = async () => {
      try {
        const opened = await member.etcd.watchClient.watch(withToken(await login));
        stream = opened;
        if (over) return close();
        const current = (/** @type {() => void} */ then) => { if (stream === opened) then(); };
        opened.on('data', (news) => current(() => hear(news)));
        opened.on('error', (/** @type {Error} */ error) => current(() => end(failure(error))));
        opened.on('end', () => current(() => end({ tag: 'unavailable' })));
        // Without a start_revision: etcd serves one that is past only every 100 ms.
        const from = since === undefined ? {} : { start_revision: `${since}` };
        const name = this.#access.wire(key);
        stream.write({ create_request: { key: name, ...until(name, prefix), ...from } });
      } catch (error) {
        end(failure(/** @type {Error} */ (error)));
      }
    };
    open();
    return close;
  }

  /** @param {any} kv */
  #entry(kv) {
    return {
      key: this.#access.own(kv.key),
      value: kv.value,
      lease: BigInt(kv.lease),
      created: BigInt(kv.create_revision),
      modified: BigInt(kv.mod_revision),
    };
  }

  /** @param {Selection} selection */
  #range({ key, prefix, from = key, createdBefore, order, limit, keysOnly }) {
    const name = this.#access.wire(key);
    const first = Buffer.compare(from, key) > 0 ? this.#access.wire(from) : name;
    const range = until(name, prefix);
    // A single key has no page behind it, and few users may read a range that ends before it begins:
    // ask for one key, as it was before the first revision.
    const isBeyond = prefix ? isBehind(first, range) : first !== name;
    const before = isBeyond ? 0n : createdBefore;
    // 0 would be no bound, and no key was created before revision 1.
    const last = before === undefined ? 0n : before > 1n ? before - 1n : -1n;
    return {
      ...(isBeyond ? { key: named(name) } : { key: named(first), ...range }),
      limit,
      max_create_revision: `${last}`,
      keys_only: keysOnly,
      ...SORTED[order],
    };
  }

  /** @param {Guard} guard */
  #guards({ key, epoch, lease }) {
    const name = this.#access.wire(key);
    const created = { key: name, target: 'Create', create_revision: `${epoch}` };
    return lease === undefined ? [created] : [created, { key: name, target: 'Lease', lease: `${lease}` }];
  }

  /**
   * @param {Uint8Array} leaderKey
   * @param {Mutation} mutation
   */
  #change(leaderKey, mutation) {
    switch (mutation.tag) {
      case 'put': return { request_put: { ...mutation.val, key: this.#access.wire(mutation.val.key) } };
      case 'proclaim': {
        const key = this.#access.wire(leaderKey);
        return { request_put: { key, value: mutation.val, ignore_lease: true } };
      }
      case 'delete': return { request_delete_range: { key: this.#access.wire(mutation.val) } };
    }
  }

  /** Ends the connection, and all that is under way. */
  close() {
    for (const member of this.#members) member.close();
  }
}

/**
 * Whether another member may answer where this one did not.
 *
 * @param {Failure} failure
 */
function isSilence({ tag }) {
  return tag === 'timeout' || tag === 'unavailable';
}

const SORTED = {
  'oldest-first': { sort_target: 'Create', sort_order: 'Ascend' },
  'newest-first': { sort_target: 'Create', sort_order: 'Descend' },
  // As etcd has them: it stops at the limit.
  'by-key': {},
};

/**
 * The end of the range of all keys that begin with `key`.
 *
 * @param {Uint8Array} key
 * @param {boolean} prefix
 */
function until(key, prefix) {
  if (!prefix) return {};
  const kept = key.findLastIndex((byte) => byte < 0xff) + 1;
  const end = Buffer.from(key.subarray(0, kept));
  if (kept > 0) end.writeUInt8(end.readUInt8(kept - 1) + 1, kept - 1);
  return { range_end: kept > 0 ? end : Buffer.of(0) };
}

/**
 * Whether this key is behind the end of the range.
 *
 * @param {Buffer} first
 * @param {{ range_end?: Buffer }} range
 */
function isBehind(first, { range_end: end }) {
  // \0 is etcd's name for the end of all keys.
  return end !== undefined && !end.equals(Buffer.of(0)) && first.compare(end) >= 0;
}

/**
 * etcd has no key without a name.
 *
 * @param {Buffer} key
 */
function named(key) {
  return key.length > 0 ? key : Buffer.of(0);
}

/**
 * What an error means as an answer. The lost races are answers: etcd says them by errors.
 *
 * @param {Operation} operation
 * @param {Error} error
 * @returns {Outcome}
 */
function answeredByError(operation, error) {
  if (operation.tag === 'grant' && error.message.includes('lease already exists')) {
    return { tag: 'ok', val: { tag: 'exists' } };
  }
  if (['claim', 'revoke'].includes(operation.tag) && error.message.includes('lease not found')) {
    return { tag: 'ok', val: { tag: 'expired' } };
  }
  return { tag: 'err', val: failure(error) };
}

/**
 * What etcd's errors mean, the first that fits: it has one code of gRPC's for many things, and
 * tells them apart in words.
 *
 * @type {[RegExp, Failure['tag']][]}
 */
const MEANINGS = [
  // A request that met a change of etcd's users passes when it is asked again.
  [/too many requests|revision of auth store is old|revision in header is old/, 'unavailable'],
  [/^4 |^14 .*request timed out/, 'timeout'],
  [/^(1|10|14) /, 'unavailable'],
  [/^(7|16) |^3 .*(authentication failed|user name (is empty|not))/, 'denied'],
  [/^3 |^8 .*larger than max|^11 .*too large lease TTL/, 'invalid'],
];

/**
 * @param {Error} error as etcd3 has it: the code, its name, and etcd's words, all in the message
 * @returns {Failure}
 */
export function failure({ message }) {
  const tag = MEANINGS.find(([words]) => words.test(message))?.[1] ?? 'other';
  return /** @type {Failure} */ ({ tag, val: message.replace(/^\d+ [A-Z_]+: /, '') });
}

/**
 * Why etcd took a watch away.
 *
 * @param {string} reason
 * @returns {Failure}
 */
function cancellation(reason) {
  const denied = /permission denied|invalid auth token|user name is empty|auth store is old/;
  return { tag: denied.test(reason) ? 'denied' : 'other', val: reason };
}
