// etcd: what the elector asks, as etcd's requests; what etcd answers, as the elector's types.

import { InterceptingCall } from '@grpc/grpc-js';
import { noop } from 'cockatiel';
import { Etcd3 } from 'etcd3';
import { ElectionError, sentence } from './errors.mjs';

/**
 * @import { CallOptions, Interceptor } from '@grpc/grpc-js'
 * @import { Change, Failure, Guard, Mutation, Operation, Response, Selection, Watch }
 *   from '../component/interfaces/incumbent-election-types.js'
 */

/** @typedef {{ tag: 'ok', val: Response } | { tag: 'err', val: Failure }} Outcome */

const SECOND = 1_000_000_000n;
/** Where etcd listens unless it is told otherwise. */
const PORT = 2379;
/** How long etcd may take to open a watch, or for a first answer, in milliseconds. */
const OPENING = 5_000;

/** A connection to etcd: to one member, until it fails. */
export class Store {
  #hosts;
  #members;
  /** Which of them is asked: it counts on with each that fails. */
  #turn;
  /** How long the lease lives, as etcd said last, in milliseconds. */
  #lifetime = 0;

  /** @param {string} url `etcd://HOST:PORT[,HOST:PORT…]` */
  constructor(url) {
    this.#hosts = parsed(url);
    this.#members = this.#hosts.map(connection);
    // Sessions spread.
    this.#turn = Math.floor(Math.random() * this.#members.length);
  }

  get #member() {
    return /** @type {Etcd3} */ (this.#members[this.#turn % this.#members.length]);
  }

  /**
   * Has the next member asked from now on, unless that has happened.
   *
   * @param {number} turn in which there was no answer
   */
  #passOn(turn) {
    if (turn === this.#turn) this.#turn += 1;
  }

  /** Finds out that etcd answers. */
  async probe() {
    for (let left = this.#members.length; ; left -= 1) {
      try {
        await this.#member.maintenance.status({ deadline: Date.now() + OPENING / this.#members.length });
        return;
      } catch (error) {
        this.#passOn(this.#turn);
        if (left > 1) continue;
        const { message } = /** @type {Error} */ (error);
        const why = /Last error: (?:Error: )?(.*?)\. /.exec(message)?.[1] ?? message;
        throw new ElectionError('unreachable', `no etcd answers at etcd://${this.#hosts} (${why}): is it running there?`);
      }
    }
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
      throw new ElectionError('unreachable', `${Buffer.from(key)} cannot be read at etcd://${this.#hosts}: ${why}`);
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
      return { tag: 'ok', val: await this.#answer(operation, { deadline: Date.now() + within }) };
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
   * @param {CallOptions} options
   * @returns {Promise<Response>}
   */
  async #answer(operation, options) {
    const { leaseClient } = this.#member;
    switch (operation.tag) {
      case 'grant': {
        const { lease, ttl } = operation.val;
        const seconds = (ttl + SECOND - 1n) / SECOND || 1n;
        const granted = await leaseClient.leaseGrant({ ID: `${lease}`, TTL: `${seconds}` }, options);
        this.#lifetime = Number(granted.TTL) * 1_000;
        return { tag: 'granted', val: BigInt(granted.TTL) * SECOND };
      }
      case 'keep-alive': {
        const ttl = await this.#renew(operation.val, options);
        return ttl > 0n ? { tag: 'renewed', val: ttl * SECOND } : { tag: 'expired' };
      }
      case 'revoke':
        await leaseClient.leaseRevoke({ ID: `${operation.val}` }, options);
        return { tag: 'revoked' };
      case 'claim': {
        const { key, value, lease } = operation.val;
        const answer = await this.#transact({
          compare: [{ key, target: 'Create', create_revision: '0' }],
          success: [{ request_put: { key, value, lease: `${lease}` } }],
          failure: [{ request_range: { key } }],
        }, options);
        const at = BigInt(answer.header.revision);
        if (answer.succeeded) {
          return { tag: 'claimed', val: { entry: { key, value, lease, created: at, modified: at }, at } };
        }
        return { tag: 'taken', val: { entry: entry(answer.responses[0].response_range.kvs[0]), at } };
      }
      case 'read':
        for (;;) {
          try {
            return { tag: 'snapshot', val: await this.#snapshot(operation.val, options) };
          } catch (error) {
            // It was compacted in between, or another member was asked.
            if (!/required revision/.test(/** @type {Error} */ (error).message)) throw error;
          }
        }
      case 'guarded': {
        // One transaction in another tells a guard that does not hold from an expectation.
        const { guard, expect, mutations } = operation.val;
        const answer = await this.#transact({
          compare: guards(guard),
          success: [{
            request_txn: {
              compare: expect.map(({ key, modified }) => (
                { key, target: 'Mod', mod_revision: `${modified}` })),
              success: mutations.map((mutation) => change(guard.key, mutation)),
            },
          }],
        }, options);
        if (!answer.succeeded) return { tag: 'stale' };
        if (!answer.responses[0].response_txn.succeeded) return { tag: 'conflict' };
        return { tag: 'applied', val: BigInt(answer.header.revision) };
      }
    }
  }

  /**
   * All at one revision, and in no transaction: etcd 3.5.0 to 3.5.4 panic when one that reads is
   * given up while it is served (etcd#14110). The first one tells the revision.
   *
   * @param {Selection[]} selections
   * @param {CallOptions} options
   */
  async #snapshot(selections, options) {
    const { kv } = this.#member;
    /** @returns {Promise<any>} */
    const ask = (/** @type {object} */ one) => kv.range(/** @type {any} */ (one), options);
    // Nothing at all is read at a revision, too.
    const nothing = { key: Buffer.of(0), count_only: true };
    const [first = nothing, ...others] = selections.map(range);
    const answer = await ask(first);
    const { revision } = answer.header;
    // Any member that has the revision has the same.
    const rest = others.map((one) => ask({ ...one, revision, serializable: true }));
    const answers = [answer, ...await Promise.all(rest)].slice(0, selections.length);
    return { at: BigInt(revision), found: answers.map(({ kvs }) => kvs.map(entry)) };
  }

  /**
   * @param {object} txn in etcd's own words
   * @param {CallOptions} options
   * @returns {Promise<any>}
   */
  #transact(txn, options) {
    return this.#member.kv.txn(/** @type {any} */ (txn), options);
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
    const leases = /** @type {any} */ (this.#member.leaseClient); // its types lack the options
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
    /** @type {any} */
    let stream;
    let over = false;
    const close = () => {
      over = true;
      clearTimeout(timer);
      // etcd3 takes a stream that is cancelled before it ends for a failure of the connection.
      stream?.end();
      stream?.cancel();
    };
    /** @param {Failure} failure */
    const end = (failure) => {
      if (over) return;
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
          tell({ tag: 'deleted', val: { key: kv.key, at: BigInt(kv.mod_revision) } });
        } else {
          tell({ tag: 'put', val: entry(kv) });
        }
      }
    };
    this.#member.watchClient.watch().then((opened) => {
      stream = opened;
      if (over) return close();
      stream.on('data', hear);
      stream.on('error', (/** @type {Error} */ error) => end(failure(error)));
      stream.on('end', () => end({ tag: 'unavailable' }));
      // Without a start_revision: etcd serves one that is past only every 100 ms.
      const from = since === undefined ? {} : { start_revision: `${since}` };
      stream.write({ create_request: { key, ...until(key, prefix), ...from } });
    }, (error) => end(failure(error)));
    return close;
  }

  /** Ends the connection, and all that is under way. */
  close() {
    for (const member of this.#members) member.close();
  }
}

/**
 * The members that a URL names, as `HOST:PORT`.
 *
 * @param {string} url
 */
function parsed(url) {
  const [, list = ''] = /^etcd:\/\/([^/]+)\/?$/.exec(url) ?? [];
  const hosts = list.split(',').map((host) => {
    const [, name, port = PORT] = /^([^:@[\]\s]+|\[[\da-f:.]+\])(?::(\d+))?$/i.exec(host) ?? [];
    return name && Number(port) >= 1 && Number(port) <= 65_535 ? `${name}:${port}` : '';
  });
  if (hosts.every(Boolean)) return hosts;
  // What may be a password is not repeated.
  const shown = String(url).replace(/\/\/.*@/s, '//…@');
  throw new ElectionError('configuration',
    `${shown} names no etcd: write etcd://HOST:PORT[,HOST:PORT…], without a user and without a path`);
}

/** @param {string} host */
function connection(host) {
  return new Etcd3({
    hosts: [`http://${host}`],
    // etcd3 would ask again by itself; a claim or a write must never be sent twice.
    faultHandling: { host: () => noop, global: noop },
    defaultCallOptions: { interceptors: [requireLeader] },
    grpcOptions: {
      // So would gRPC, or have DNS tell it to.
      'grpc.enable_retries': 0,
      'grpc.service_config_disable_resolution': 1,
      // A dead link is noticed by pings; etcd hangs up on more than one in 5 s.
      'grpc.keepalive_time_ms': 10_000,
      'grpc.keepalive_timeout_ms': 3_000,
      'grpc.enable_http_proxy': 0,
      'grpc.initial_reconnect_backoff_ms': 100,
      'grpc.max_reconnect_backoff_ms': 1_000,
      // Others may have put large values where candidates are.
      'grpc.max_receive_message_length': -1,
    },
  });
}

/**
 * Whether another member may answer where this one did not.
 *
 * @param {Failure} failure
 */
function isSilence({ tag }) {
  return tag === 'timeout' || tag === 'unavailable';
}

/**
 * A member that has lost its leader is to say so, and not to keep us waiting.
 *
 * @type {Interceptor}
 */
const requireLeader = (options, next) => new InterceptingCall(next(options), {
  start(metadata, listener, begin) {
    metadata.set('hasleader', 'true');
    begin(metadata, listener);
  },
});

/** @param {any} kv */
function entry(kv) {
  return {
    key: kv.key,
    value: kv.value,
    lease: BigInt(kv.lease),
    created: BigInt(kv.create_revision),
    modified: BigInt(kv.mod_revision),
  };
}

/**
 * @param {Selection} selection
 */
function range({ key, prefix, from = key, createdBefore, order, limit, keysOnly }) {
  const first = Buffer.compare(from, key) > 0 ? from : key;
  // One key is not behind itself.
  const before = prefix || first === key ? createdBefore : 0n;
  // 0 would be no bound, and no key was created before revision 1.
  const last = before === undefined ? 0n : before > 1n ? before - 1n : -1n;
  return {
    // etcd has no key without a name.
    key: first.length > 0 ? first : Buffer.of(0),
    ...until(key, prefix),
    limit,
    max_create_revision: `${last}`,
    keys_only: keysOnly,
    ...SORTED[order],
  };
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

/** @param {Guard} guard */
function guards({ key, epoch, lease }) {
  const created = { key, target: 'Create', create_revision: `${epoch}` };
  return lease === undefined ? [created] : [created, { key, target: 'Lease', lease: `${lease}` }];
}

/**
 * @param {Uint8Array} leaderKey
 * @param {Mutation} mutation
 */
function change(leaderKey, mutation) {
  switch (mutation.tag) {
    case 'put': return { request_put: mutation.val };
    case 'proclaim': return { request_put: { key: leaderKey, value: mutation.val, ignore_lease: true } };
    case 'delete': return { request_delete_range: { key: mutation.val } };
  }
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
