// The loop between elector, store and application, as wit/README.md has it.

import { randomFillSync } from 'node:crypto';
import { at, milliseconds, now } from './clock.mjs';
import { openElector } from './component.mjs';

/**
 * @import { Elector } from '../component/interfaces/incumbent-election-elector.js'
 * @import { Call, Command, Config, Event, Notice, Operation }
 *   from '../component/interfaces/incumbent-election-types.js'
 * @import { Recorder } from './recorder.mjs'
 * @import { Outcome, Store } from './store.mjs'
 */

/** The first pause before a broken elector is replaced, and the longest one, in nanoseconds. */
const [SHORTEST, LONGEST] = [500_000_000n, 30_000_000_000n];
/** An elector that has worked for so long is replaced after the first pause. */
const PROBATION = 60_000_000_000n;

/** How many events the elector is told in one step. The event loop has its turn in between. */
const EVENTS = 256;
/**
 * How many calls may be under way at etcd; others wait for them. Thousands at once would delay one
 * another until the answers come too late for all of them.
 */
const CALLS = 256;
/** Operations on the lease. They do not wait, because every term depends on them. */
const OF_THE_LEASE = ['grant', 'keep-alive', 'revoke'];

/** Drives an elector; replaces one that breaks. */
export class Driver {
  /** @type {Elector | undefined} */
  #elector;
  /** @type {Event[]} */
  #events = [];
  #calling = 0;
  /** Those that wait to call. @type {(() => void)[]} */
  #calls = [];
  /** What ends each watch, by its id. @type {Map<bigint, () => void>} */
  #watches = new Map();
  #disarm = () => {};
  #opened = 0n;
  #pause = SHORTEST;

  /**
   * @param {object} parts
   * @param {Omit<Config, 'seed'>} parts.config
   * @param {Store} parts.store
   * @param {(notice: Notice) => void} parts.notify
   * @param {(operation: Operation['tag'], outcome: Outcome, span: bigint) => void} [parts.answered]
   *   etcd has answered, or has not, after so many nanoseconds
   * @param {(error: Error) => void} parts.broken the elector broke: its memory is gone
   * @param {() => void} parts.replaced another elector is there, and knows of nothing
   * @param {Recorder} [parts.recorder] is told every step
   * @param {typeof openElector} [parts.open]
   */
  constructor({ open = openElector, ...parts }) {
    this.parts = { open, ...parts };
    this.#open();
  }

  /** An elector is there to take events. */
  get isRunning() {
    return this.#elector !== undefined;
  }

  #open() {
    // New for every elector, and not to be guessed: its lease ids are drawn from it.
    const [first, second] = randomFillSync(new BigUint64Array(2));
    const seed = /** @type {[bigint, bigint]} */ ([first, second]);
    this.#opened = now();
    const config = { ...this.parts.config, seed };
    this.#elector = this.parts.open(config, this.#opened);
    this.parts.recorder?.opened(this.#opened, config);
  }

  /**
   * Has the elector told of something. What comes in one turn of Node's is told together.
   *
   * @param {Event} event
   */
  push(event) {
    if (this.#events.push(event) === 1) queueMicrotask(() => this.#turn());
  }

  #turn() {
    const events = this.#events.splice(0, EVENTS);
    if (!this.#elector || events.length === 0) return;
    if (this.#events.length > 0) setImmediate(() => this.#turn());
    this.#disarm();
    let step;
    // The clock is read right before; whatever the step sends is sent after it.
    const mark = now();
    try {
      step = this.#elector.handle(mark, events);
    } catch (error) {
      this.parts.recorder?.stepped(mark, events);
      return this.#broke(/** @type {Error} */ (error));
    }
    for (const command of step.commands) this.#obey(command, this.#elector);
    if (step.deadline !== undefined) {
      this.#disarm = at(step.deadline, () => this.push({ tag: 'wake' }));
    }
    this.parts.recorder?.stepped(mark, events, step);
  }

  /**
   * @param {Command} command
   * @param {Elector} elector the one that commands: what comes of it is not told to another
   */
  #obey(command, elector) {
    /** @param {Event} event */
    const push = (event) => {
      if (elector === this.#elector) this.push(event);
    };
    switch (command.tag) {
      case 'call': {
        const { id } = command.val;
        const sent = now();
        this.#call(command.val).then((outcome) => {
          this.parts.answered?.(command.val.operation.tag, outcome, now() - sent);
          push({ tag: 'reply', val: { id, outcome } });
        });
        break;
      }
      case 'watch': {
        const { id } = command.val;
        const end = this.parts.store.watch(command.val, (change) => {
          if (change.tag === 'ended') this.#watches.delete(id);
          push({ tag: 'watched', val: { id, change } });
        });
        this.#watches.set(id, end);
        break;
      }
      case 'unwatch':
        this.#watches.get(command.val)?.();
        this.#watches.delete(command.val);
        break;
      case 'notify':
        // In a turn of its own: an error of the application's is not the driver's.
        process.nextTick(this.parts.notify, command.val);
    }
  }

  /**
   * Asks etcd, in its turn. What has waited too long is not sent any more.
   *
   * @param {Call} call
   * @returns {Promise<Outcome>}
   */
  async #call({ giveUp, operation }) {
    const ask = () => this.parts.store.ask(operation, milliseconds(giveUp - now()));
    if (OF_THE_LEASE.includes(operation.tag)) return ask();
    if (this.#calling < CALLS) this.#calling += 1;
    else await new Promise((turn) => this.#calls.push(() => turn(undefined)));
    /** @type {Outcome} */
    const outcome = now() < giveUp ? await ask() : { tag: 'err', val: { tag: 'timeout' } };
    const next = this.#calls.shift();
    if (next) next();
    else this.#calling -= 1;
    return outcome;
  }

  /** @param {Error} error */
  #broke(error) {
    this.#drop();
    this.parts.recorder?.broke(error.message);
    process.nextTick(this.parts.broken, error);
    if (now() - this.#opened > PROBATION) this.#pause = SHORTEST;
    this.#disarm = at(now() + this.#pause, () => {
      try {
        this.#open();
      } catch (again) {
        return this.#broke(/** @type {Error} */ (again));
      }
      this.parts.replaced();
    });
    this.#pause = this.#pause * 2n < LONGEST ? this.#pause * 2n : LONGEST;
  }

  #drop() {
    this.#elector = undefined;
    [this.#events, this.#calls] = [[], []];
    this.#disarm();
    for (const end of this.#watches.values()) end();
    this.#watches.clear();
  }

  /** Stops driving. The elector should have said `closed`. */
  stop() {
    this.#drop();
  }
}
