// What an application begins with: a session on etcd, and its candidacies.

import { EventEmitter } from 'node:events';
import { hostname } from 'node:os';
import { bytes, contest, count, priority, seconds, text } from './arguments.mjs';
import { Driver } from './driver.mjs';
import { ElectionError, sentence } from './errors.mjs';
import { Leadership } from './leadership.mjs';
import { Recorder } from './recorder.mjs';
import { Store } from './store.mjs';

export { now } from './clock.mjs';
export { ElectionError, Leadership };

/**
 * @import { Candidacy, Contest, Limit, Mutation, Notice, Operation, Term, WriteOutcome }
 *   from '../component/interfaces/incumbent-election-types.js'
 * @import { Credentials } from './access.mjs'
 * @import { Recording } from './recorder.mjs'
 * @import { Outcome } from './store.mjs'
 */

/** How many writes may be under way on one session; others wait for them. */
const WRITES = 256;
/**
 * How many candidacies may be on their way into line; others wait for them. Thousands at once would
 * delay one another until etcd's answers come too late for all of them.
 */
const JOINING = 256;

/**
 * @typedef {object} SessionOptions
 * @property {string} [identity] what others read of this process: its machine and number unless given
 * @property {number} [ttl] how long its lease lives, in seconds: 10 unless given; etcd grants 2 at
 *   least
 * @property {number} [margin] taken off every deadline, in seconds, for clocks that run at
 *   different rates; 1% of the lease time at least
 * @property {Recording} [record] writes every step to files, which `incumbent replay` reads
 * @property {typeof import('./component.mjs').openElector} [open] another elector, for tests
 */

/** @typedef {SessionOptions & Credentials} Options */

/** What others read of this process, unless another identity is given. */
const IDENTITY = `${hostname()}-${process.pid}`;

/** No limit: the largest number that the elector takes. */
const MOST = 2 ** 32 - 1;

/** How long etcd may take to answer, in nanoseconds. */
const REQUEST = 5_000_000_000n;

/**
 * A candidacy until its end.
 *
 * @typedef {object} Candidate
 * @property {Candidacy} candidacy
 * @property {AbortSignal} [signal]
 * @property {PromiseWithResolvers<Leadership>} elected
 * @property {PromiseWithResolvers<void>} over
 * @property {Leadership} [leadership]
 * @property {boolean} [isHeld] the elector is not told of it yet
 * @property {boolean} [leaves] it was given up, or its work has stopped
 * @property {boolean} [orphaned] the elector that knew of its leadership broke
 */

/**
 * @typedef {object} Events
 * @property {[Leadership]} extended
 * @property {[Leadership]} endangered
 * @property {[string]} trouble
 * @property {[string]} joined
 * @property {[Leadership]} elected
 * @property {[Operation['tag'], Outcome, bigint]} answered
 * @property {[]} fenced
 * @property {[]} replaced
 */

/**
 * One identity and one lease, and any number of candidacies on it. It emits
 *
 * - `extended`, with the leadership, whenever its `validUntil` has moved;
 * - `endangered`, with the leadership: renewals fail, and less than half of its time is left;
 * - `trouble`, with a sentence: something a person should know, while the session carries on.
 *
 * And for `metrics.mjs`: `joined`, with the name of an election that has a candidate of ours in
 * line; `elected`, with the leadership; `answered`, with what etcd was asked, what it answered, and
 * how long that took, in nanoseconds; `fenced`, for a write that was refused because its term was
 * over; `replaced`, for an elector that broke.
 *
 * @extends {EventEmitter<Events>}
 */
export class Session extends EventEmitter {
  #store;
  #recorder;
  #driver;
  #ids = 0;
  /** @type {Map<number, Candidate>} */
  #candidates = new Map();
  /**
   * Those that are given up and not over yet, by the name of their election.
   *
   * @type {Map<string, Set<Candidate>>}
   */
  #leaving = new Map();
  /** Those that the elector knows of, and that are not in line yet. @type {Set<Candidate>} */
  #joining = new Set();
  /** Those that the elector is not told of yet, and some that are over. @type {Candidate[]} */
  #held = [];
  /** @type {Map<bigint, (outcome: WriteOutcome) => void>} */
  #writes = new Map();
  #writing = 0;
  /** Those that wait to write. @type {(() => void)[]} */
  #waiting = [];
  /** @type {PromiseWithResolvers<void>} */
  #closed = deferred();
  #closing = false;
  /** How much it leads; as much as comes without. @type {Limit | undefined} */
  #limit;
  /** The same while it is drained. @type {Limit | undefined} */
  #drained;

  /**
   * Connects to etcd, and makes sure that it answers and accepts us.
   *
   * @param {string} [url] `etcd://HOST:PORT[,HOST:PORT…][/PREFIX]`, or `etcds://…` for TLS. With a
   *   prefix, all keys begin with `PREFIX/` in etcd, and here they do not.
   * @param {Options} [options]
   * @throws {ElectionError} `unreachable`, `configuration`
   */
  static async connect(url = 'etcd://127.0.0.1:2379', options = {}) {
    const store = new Store(url, options);
    let recorder;
    try {
      await store.probe();
      const identity = text('identity', options.identity ?? IDENTITY);
      if (options.record) recorder = await Recorder.start(options.record, identity);
      return new Session(store, options, recorder);
    } catch (error) {
      await recorder?.close();
      store.close();
      throw error;
    }
  }

  /**
   * For `connect`.
   *
   * @param {Store} store
   * @param {Options} options
   * @param {Recorder} [recorder]
   */
  constructor(store, { identity = IDENTITY, ttl = 10, margin = 0, open }, recorder) {
    super();
    /** What others read of this process. */
    this.identity = text('identity', identity);
    this.#store = store;
    this.#recorder = recorder;
    if (recorder) recorder.trouble = (why) => this.emit('trouble', why);
    this.#driver = new Driver({
      config: {
        leaseTtl: seconds('ttl', ttl),
        safetyMargin: seconds('margin', margin),
        requestTimeout: REQUEST,
      },
      store,
      recorder,
      open,
      answered: (operation, outcome, span) => this.emit('answered', operation, outcome, span),
      notify: (notice) => this.#notice(notice),
      broken: (error) => this.#broke(error),
      replaced: () => this.#campaignAgain(),
    });
  }

  /**
   * Stands for election, and waits to lead, as long as it takes; first, until an earlier candidacy
   * of the name that is given up is over.
   *
   * @param {string} name
   * @param {object} [how]
   * @param {Contest} [how.contest] first come, first served; or `race`: one key, and its maker
   *   leads. All candidates of a name have to agree
   * @param {string | Uint8Array} [how.value] what others read of this candidate: the session's
   *   identity unless given
   * @param {number} [how.priority] those in line with a lower one get behind this candidate; below
   *   zero it leads only if nobody else is in line
   * @param {number} [how.preemptAfter] a leader with a lower priority hands over to this candidate,
   *   once, after so many seconds
   * @param {AbortSignal} [how.signal] gives up, and leaves nothing behind
   * @returns {Promise<Leadership>}
   * @throws {ElectionError} `withdrawn`, `closed`, `configuration`; or the signal's reason
   */
  async campaign(
    name,
    { contest: asked = 'queue', value = this.identity, priority: rank = 0, preemptAfter, signal } = {},
  ) {
    const request = {
      name: text('name', name),
      contest: contest(asked),
      value: bytes('value', value),
      priority: priority(rank),
      preemptAfter: preemptAfter === undefined ? undefined : seconds('preemptAfter', preemptAfter),
    };
    for (let leaving = this.#leaving.get(name); leaving; leaving = this.#leaving.get(name)) {
      await Promise.all([...leaving].map(({ over }) => over.promise));
    }
    signal?.throwIfAborted();
    if (this.#closing) throw new ElectionError('closed', 'the session is closed');
    const election = ++this.#ids;
    const candidacy = { election, ...request, rejoin: false };
    /** @type {Candidate} */
    const candidate = { candidacy, signal, elected: deferred(), over: deferred() };
    this.#candidates.set(election, candidate);
    this.#join(candidate);
    const leave = () => {
      if (candidate.leadership) return;
      this.#leaves(candidate);
      if (candidate.isHeld || !this.#driver.isRunning) this.#over(candidate);
      else this.#driver.push({ tag: 'leave', val: election });
    };
    signal?.addEventListener('abort', leave, { once: true });
    return candidate.elected.promise.finally(() => signal?.removeEventListener('abort', leave));
  }

  /**
   * Hands over all leaderships in order, and takes part in nothing until `undoDrain`: what a process does
   * before its machine is taken away. Each leadership ends as soon as somebody else is in line
   * (`resigned`), and in a race at once. Candidates leave the line, and go on as candidates.
   *
   * @param {number} [most] how many leaderships are being given up at a time
   * @throws {ElectionError} `configuration`
   */
  drain(most = 16) {
    this.#drained = { atMost: 0, isFair: false, atOnce: count('most', most) };
    this.#tellLimit();
  }

  /** Takes part again. */
  undoDrain() {
    this.#drained = undefined;
    this.#tellLimit();
  }

  /**
   * Leads no more than that where others are in line too; nothing given, as much as comes. What is
   * beyond it is handed over in order. If nobody else is in line, it leads all the same.
   *
   * @param {object} [how]
   * @param {number} [how.atMost] so many leaderships
   * @param {boolean} [how.isFair] and no more than its fair part, by who is in line
   * @param {number} [how.atOnce] how many are being handed over at a time: 32 unless given
   * @throws {ElectionError} `configuration`
   */
  limit({ atMost, isFair = false, atOnce = 32 } = {}) {
    const most = atMost === undefined ? MOST : count('atMost', atMost);
    const limit = { atMost: most, isFair: isFair === true, atOnce: count('atOnce', atOnce) };
    this.#limit = most === MOST && !limit.isFair ? undefined : limit;
    this.#tellLimit();
  }

  #tellLimit() {
    // Otherwise the next elector is told first of all.
    if (this.#driver.isRunning) this.#driver.push({ tag: 'limit', val: this.#drained ?? this.#limit });
  }

  /**
   * A key as it is now, and the revision of its last change, which a write may expect.
   *
   * @param {string | Uint8Array} key
   * @returns {Promise<{ value: Uint8Array, modified: bigint } | undefined>}
   * @throws {ElectionError} `unreachable`, `configuration`
   */
  async get(key) {
    return this.#store.get(bytes('key', key));
  }

  /**
   * Leaves everything, and gives the lease back. It waits for leaderships that were not resigned,
   * to their deadlines.
   */
  close() {
    if (!this.#closing) {
      this.#closing = true;
      if (this.#driver.isRunning) this.#driver.push({ tag: 'close' });
      else this.#end();
    }
    return this.#closed.promise;
  }

  /** @param {Notice} notice */
  #notice(notice) {
    switch (notice.tag) {
      case 'joined': {
        const candidate = this.#candidates.get(notice.val.election);
        if (!candidate) return;
        this.#joined(candidate);
        this.emit('joined', candidate.candidacy.name);
        return;
      }
      case 'elected': {
        const { term } = notice.val;
        const candidate = this.#candidates.get(term.election);
        if (!candidate) return;
        this.#joined(candidate);
        const leadership = new Leadership(candidate.candidacy.name, notice.val, {
          write: (mutation, modified) => this.#write(term, mutation, modified),
          yielded: () => this.#yielded(candidate, term),
          expired: () => this.#recorder?.expired(candidate.candidacy.name, term.epoch),
        });
        candidate.leadership = leadership;
        this.emit('elected', leadership);
        // It led before it heard that it is to leave.
        if (candidate.signal?.aborted) leadership.resign();
        else candidate.elected.resolve(leadership);
        return;
      }
      case 'extended': {
        const { lease, validUntil } = notice.val;
        for (const { leadership } of [...this.#candidates.values()]) {
          if (leadership?.extend(lease, validUntil)) this.emit('extended', leadership);
        }
        return;
      }
      case 'endangered': {
        const leadership = this.#candidates.get(notice.val.term.election)?.leadership;
        if (leadership) this.emit('endangered', leadership);
        return;
      }
      case 'hand-over':
        this.#driver.push({ tag: 'resign', val: notice.val });
        return;
      case 'demoted': {
        const { term, reason } = notice.val;
        const name = reason.tag === 'other' ? reason.val : reason.tag;
        this.#candidates.get(term.election)?.leadership?.end(name);
        return;
      }
      case 'withdrawn': {
        const { election, cause } = notice.val;
        const candidate = this.#candidates.get(election);
        const error = cause && new ElectionError('withdrawn', sentence(cause));
        if (candidate) this.#over(candidate, error);
        return;
      }
      case 'written':
        this.#writes.get(notice.val.ticket)?.(notice.val.outcome);
        return;
      case 'trouble':
        this.emit('trouble', sentence(notice.val.failure));
        return;
      case 'closed':
        this.#end();
    }
  }

  /**
   * @param {Term} term
   * @param {Mutation} mutation
   * @param {bigint} [modified]
   * @returns {Promise<bigint>}
   */
  async #write(term, mutation, modified) {
    if (this.#writing < WRITES) this.#writing += 1;
    else await new Promise((turn) => this.#waiting.push(() => turn(undefined)));
    const outcome = await this.#written(term, mutation, modified);
    const next = this.#waiting.shift();
    if (next) next();
    else this.#writing -= 1;
    switch (outcome.tag) {
      case 'applied': return outcome.val;
      case 'stale':
        this.emit('fenced');
        throw new ElectionError('stale', 'the term is over: nothing was changed');
      case 'conflict': throw new ElectionError('conflict', 'the key was changed since the revision expected');
      case 'unknown': throw new ElectionError('unknown', 'no answer: it may have happened, or happen yet');
      case 'failed': throw new ElectionError('refused', sentence(outcome.val));
    }
  }

  /**
   * @param {Term} term
   * @param {Mutation} mutation
   * @param {bigint} [modified]
   * @returns {Promise<WriteOutcome>}
   */
  async #written(term, mutation, modified) {
    // Its elector is gone, and with it the term.
    if (!this.#driver.isRunning) return { tag: 'stale' };
    const ticket = BigInt(++this.#ids);
    const key = mutation.tag === 'put' ? mutation.val.key : mutation.val;
    const expect = modified === undefined ? [] : [{ key, modified }];
    this.#driver.push({ tag: 'write', val: { term, ticket, expect, mutations: [mutation] } });
    /** @type {WriteOutcome} */
    const outcome = await new Promise((answer) => this.#writes.set(ticket, answer));
    this.#writes.delete(ticket);
    return outcome;
  }

  /**
   * @param {Candidate} candidate
   * @param {Term} term
   */
  #yielded(candidate, term) {
    this.#leaves(candidate);
    if (candidate.orphaned) this.#over(candidate);
    else this.#driver.push({ tag: 'yielded', val: term });
    return candidate.over.promise;
  }

  /**
   * Has the elector told of a candidacy, at once or when another one is in line.
   *
   * @param {Candidate} candidate
   */
  #join(candidate) {
    candidate.isHeld = this.#joining.size >= JOINING;
    if (candidate.isHeld) {
      this.#held.push(candidate);
    } else {
      this.#joining.add(candidate);
      this.#driver.push({ tag: 'campaign', val: candidate.candidacy });
    }
  }

  /**
   * It is in line, or over: another one may join.
   *
   * @param {Candidate} candidate
   */
  #joined(candidate) {
    // A session that closes is over for those that wait as well.
    if (!this.#joining.delete(candidate) || this.#closing) return;
    let next = this.#held.shift();
    while (next && !next.isHeld) next = this.#held.shift();
    if (next) this.#join(next);
  }

  /** @param {Candidate} candidate */
  #leaves(candidate) {
    const { election, name } = candidate.candidacy;
    candidate.leaves = true;
    // It may be over already.
    if (!this.#candidates.has(election)) return;
    this.#leaving.set(name, (this.#leaving.get(name) ?? new Set()).add(candidate));
  }

  /**
   * @param {Candidate} candidate
   * @param {Error} [error]
   */
  #over(candidate, error = new ElectionError('closed', 'the session is closed')) {
    const { election, name } = candidate.candidacy;
    this.#candidates.delete(election);
    const leaving = this.#leaving.get(name);
    if (leaving?.delete(candidate) && leaving.size === 0) this.#leaving.delete(name);
    candidate.isHeld = false;
    this.#joined(candidate);
    candidate.leadership?.end('resigned');
    candidate.elected.reject(candidate.signal?.aborted ? candidate.signal.reason : error);
    candidate.over.resolve();
  }

  /** @param {Error} error */
  #broke(error) {
    for (const answer of this.#writes.values()) answer({ tag: 'unknown' });
    if (this.#closing) this.#end();
    for (const candidate of this.#candidates.values()) {
      if (candidate.leaves) this.#over(candidate);
      // Nobody extends it any more. The lease runs out by itself: until then nobody else leads.
      candidate.leadership?.end(`the elector broke: ${error.message}`);
      candidate.orphaned = candidate.leadership !== undefined;
    }
    this.emit('replaced');
    this.emit('trouble', `the elector broke, and is replaced: ${error.message}`);
  }

  #campaignAgain() {
    if (this.#drained ?? this.#limit) this.#tellLimit();
    this.#joining.clear();
    this.#held = [];
    for (const candidate of this.#candidates.values()) {
      if (!candidate.leadership) this.#join(candidate);
    }
  }

  #end() {
    this.#driver.stop();
    this.#store.close();
    for (const candidate of this.#candidates.values()) this.#over(candidate);
    for (const answer of this.#writes.values()) answer({ tag: 'unknown' });
    if (this.#recorder) this.#recorder.close().then(() => this.#closed.resolve());
    else this.#closed.resolve();
  }
}

/**
 * A promise, and what settles it. (`Promise.withResolvers` came with Node 22.)
 *
 * @template T
 * @returns {PromiseWithResolvers<T>}
 */
function deferred() {
  /** @type {any} */
  const parts = {};
  parts.promise = new Promise((resolve, reject) => Object.assign(parts, { resolve, reject }));
  return parts;
}
