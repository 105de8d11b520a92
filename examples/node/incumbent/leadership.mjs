// One term, as its holder sees it.

import { bytes, revision } from './arguments.mjs';
import { at, now } from './clock.mjs';
import { ElectionError } from './errors.mjs';

/**
 * @import { Leadership as Elected, Mutation } from '../component/interfaces/incumbent-election-types.js'
 */

/**
 * What a leadership asks of its session.
 *
 * @typedef {object} Requests
 * @property {(mutation: Mutation, modified?: bigint) => Promise<bigint>} write
 * @property {() => Promise<void>} yielded
 * @property {() => void} expired its deadline came before the elector ended it
 */

/** One term of one election: it can touch no later one. */
export class Leadership {
  #validUntil;
  #lease;
  #requests;
  /** @type {string | undefined} */
  #reason;
  #controller = new AbortController();
  /** @type {(reason: string) => void} */
  #tell = () => {};
  /** @type {Promise<string>} */
  #lost = new Promise((resolve) => { this.#tell = resolve; });
  #disarm = () => {};

  /**
   * @param {string} name
   * @param {Elected} elected
   * @param {Requests} requests
   */
  constructor(name, elected, requests) {
    /** The election. */
    this.name = name;
    /** The fencing token: it rises from one term of an election to the next. */
    this.epoch = elected.term.epoch;
    /** The leader's key. */
    this.key = elected.key;
    this.#requests = requests;
    this.#lease = elected.lease;
    this.#validUntil = elected.validUntil;
    this.#arm();
  }

  /** Until when it lasts unless it is extended, by this process's clock (`now()`). */
  get validUntil() {
    return this.#validUntil;
  }

  /**
   * Whether it still stands, by the clock at this moment. Ask right before whatever only the
   * leader may do: no event comes while the event loop is blocked, or the process paused.
   */
  isValid() {
    return this.#reason === undefined && now() < this.#validUntil;
  }

  /** Aborted when it is over: for `fetch`, timers, and all that takes a signal. */
  get signal() {
    return this.#controller.signal;
  }

  /**
   * Settles when it is over, and says why: `resigned`, `expired`, `lease-lost`, `deposed`,
   * `fenced`, or a sentence.
   *
   * @returns {Promise<string>}
   */
  lost() {
    return this.#lost;
  }

  /**
   * Writes a key while this term stands, never after it, and answers with the revision.
   *
   * @param {string | Uint8Array} key any but the elections' own
   * @param {string | Uint8Array} value
   * @param {{ modified?: bigint }} [expected] the revision of the key's last change, or 0n where
   *   there is to be none yet
   * @returns {Promise<bigint>}
   * @throws {ElectionError} `stale`, `conflict`, `unknown`, `refused`, `configuration`
   */
  async put(key, value, { modified } = {}) {
    const put = { key: bytes('key', key), value: bytes('value', value) };
    return this.#requests.write({ tag: 'put', val: put }, revision(modified));
  }

  /**
   * Deletes a key, as `put` writes one.
   *
   * @param {string | Uint8Array} key
   * @param {{ modified?: bigint }} [expected]
   * @returns {Promise<bigint>}
   * @throws {ElectionError} `stale`, `conflict`, `unknown`, `refused`, `configuration`
   */
  async delete(key, { modified } = {}) {
    const mutation = { tag: /** @type {const} */ ('delete'), val: bytes('key', key) };
    return this.#requests.write(mutation, revision(modified));
  }

  /**
   * The work has stopped: gives the leadership back, and says why it is over. Call it after a
   * loss as well: there is no other candidacy of this name on the session before it. Settles when
   * nothing is left in the store, which takes a lease time at most.
   *
   * @returns {Promise<string>}
   */
  async resign() {
    this.end('resigned');
    await this.#requests.yielded();
    return this.#lost;
  }

  /**
   * For the session: says whether it is extended. It is not where it is on another lease, and
   * never once its deadline has passed.
   *
   * @param {bigint} lease
   * @param {bigint} validUntil
   */
  extend(lease, validUntil) {
    if (lease !== this.#lease) return false;
    if (!this.isValid()) {
      this.#expire();
      return false;
    }
    this.#validUntil = validUntil;
    this.#arm();
    return true;
  }

  /** It is over at its deadline, whether or not the elector says so. */
  #arm() {
    this.#disarm();
    this.#disarm = at(this.#validUntil, () => this.#expire());
  }

  #expire() {
    if (this.#reason === undefined) this.#requests.expired();
    this.end('expired');
  }

  /**
   * For the session.
   *
   * @param {string} reason
   */
  end(reason) {
    if (this.#reason !== undefined) return;
    this.#reason = reason;
    this.#disarm();
    this.#tell(reason);
    this.#controller.abort(new ElectionError('lost', `the leadership of ${this.name} is over: ${reason}`));
  }
}
