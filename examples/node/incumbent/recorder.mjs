// Writes what the electors of a session are told and what they say to files, which
// `incumbent replay DIR` reads. tests/transcripts/README.md has the form of the lines.

import { createHmac, randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { lstat, mkdir, open, readdir, readFile, rm } from 'node:fs/promises';
import path from 'node:path';
import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';
import { recording } from './arguments.mjs';
import { now } from './clock.mjs';
import { ElectionError } from './errors.mjs';

/**
 * @import { FileHandle } from 'node:fs/promises'
 * @import { Config, Event, Step } from '../component/interfaces/incumbent-election-types.js'
 */

/**
 * Where and how a session is recorded.
 *
 * @typedef {object} Recording
 * @property {string} dir the directory of the files, which is made if it is not there
 * @property {number} [limit] how many bytes the files may take, with those of earlier starts in the
 *   same directory: 64 MiB unless given, and 64 KiB at least. The oldest files go first
 * @property {boolean} [values] write the values of candidates and keys: unless given, something else
 *   stands in their place, the same for the same value
 */

/** @typedef {{ [field: string]: any }} Line */

/** A recording is cut into so many segments, the oldest of which go. */
const SEGMENTS = 16;
/** How many bytes may wait to be written, and how many a line may have. */
const [WAITING, LONGEST] = [32 << 20, 16 << 20];
/** How often the wall clock is told, in nanoseconds. */
const CLOCK_EVERY = 10_000_000_000n;
/** How long lines are gathered for one write, and a session that closes waits for its last lines, in ms. */
const [GATHERING, LAST_LINES] = [5, 2_000];

const VERSION = '0.1.0 (Node.js)';
const COMPONENT = new URL('../component/incumbent.wasm.sha256', import.meta.url);
/** Bytes that are values: of a field, or of a case, of this name. */
const VALUES = ['value', 'proclaim'];
/** What the keys of wishes begin with, and what their values are: numbers, and perhaps `now`. */
const WISHES = { keys: hex(Buffer.from('incumbent-wishes/')), values: /^(now|[+-]?\d{1,18})( (now|[+-]?\d{1,18}))*$/ };

/** The recordings of this process that have not ended. @type {Set<string>} */
const underWay = new Set();
let serial = 0;

/** Takes lines from the driver, and writes them later. An error ends the recording, and nothing else. */
export class Recorder {
  /** Is told, once, why the recording has ended early. @type {(sentence: string) => void} */
  trouble = () => {};
  #head;
  #dir;
  #limit;
  #hide;
  /** The file that is being written. @type {FileHandle | undefined} */
  #file;
  /** How many bytes it has, with those in the buffer; and how many are written. */
  #bytes = 0;
  #written = 0;
  #buffer = '';
  /** The other files, the oldest first. @type {{ file: string, bytes: number }[]} */
  #closed = [];
  /** What the elector knows, for the beginning of a segment. @type {Map<number, Line>} */
  #known = new Map();
  #clockTold = 0n;
  /** Lines that wait, and their bytes; and how many are left out. @type {[Line, string][]} */
  #lines = [];
  #waiting = 0;
  #missing = 0;
  /** @type {Promise<void> | undefined} */
  #writing;
  #isOver = false;

  /**
   * Begins a recording, with its first file.
   *
   * @param {Recording} options
   * @param {string} identity
   * @throws {ElectionError} `configuration`
   */
  static async start(options, identity) {
    const { dir, limit, values } = recording(options);
    const component = await readFile(COMPONENT, 'utf8').catch(() => '');
    const recorder = new Recorder(dir, limit, values, identity, component.trim());
    try {
      await mkdir(dir, { recursive: true });
      recorder.#closed = await ended(dir);
      await recorder.#next();
      await recorder.#keepToLimit();
    } catch (error) {
      await recorder.#end();
      throw new ElectionError('configuration', `nothing can be recorded in ${dir} (${reason(error)}):`
        + ' give a directory that we may write, or that we may make', error);
    }
    return recorder;
  }

  /**
   * For `start`.
   *
   * @param {string} dir
   * @param {number} limit
   * @param {boolean} values
   * @param {string} identity
   * @param {string} component
   */
  constructor(dir, limit, values, identity, component) {
    const name = `${time().replace(/[^0-9A-Z]/g, '')}-${process.pid}-${serial++}`;
    const about = { name: '', about: '', identity, recording: name, segment: -1, version: VERSION, component };
    this.#head = { format: 1, package: 'incumbent:election@0.1.0', ...about };
    this.#dir = dir;
    this.#limit = limit;
    this.#hide = values ? hex : standIns();
    underWay.add(name);
  }

  /**
   * An elector is open, in place of the one before.
   *
   * @param {bigint} mark
   * @param {Config} config
   */
  opened(mark, config) {
    this.#push({ open: config, now: mark });
  }

  /**
   * The elector has taken a step; without one, it broke.
   *
   * @param {bigint} mark
   * @param {Event[]} events
   * @param {Step} [step]
   */
  stepped(mark, events, step) {
    this.#push({ now: mark, events, step });
  }

  /** @param {string} why the elector is replaced */
  broke(why) {
    this.#push(host('broke', why));
  }

  /**
   * A term was ended at its deadline, before the elector did it.
   *
   * @param {string} name
   * @param {bigint} epoch
   */
  expired(name, epoch) {
    this.#push(host('expired', { name, epoch }));
  }

  /** Writes what waits, for two seconds at most. */
  async close() {
    this.#push(host('closed'));
    const written = Promise.resolve(this.#writing).then(() => this.#end());
    await Promise.race([written, sleep(LAST_LINES, undefined, { ref: false })]);
  }

  /** @param {Line} line */
  #push(line) {
    if (this.#isOver) return;
    if (this.#missing > 0 || this.#waiting > WAITING) {
      if (!line.host) this.#missing += 1;
      return;
    }
    try {
      let text = this.#text(line);
      if (text.length > Math.min(this.#limit / 4, LONGEST)) text = this.#text(host('gap', 1n));
      this.#lines.push([line, text]);
      this.#waiting += text.length;
      this.#writing ??= this.#write();
    } catch (error) {
      this.#fail(error);
    }
  }

  /** @param {Line} line */
  #text(line) {
    return `${JSON.stringify(encode(line, this.#hide))}\n`;
  }

  async #write() {
    try {
      await sleep(GATHERING);
      while (this.#lines.length > 0) {
        const [lines, missing] = [this.#lines, this.#missing];
        [this.#lines, this.#waiting, this.#missing] = [[], 0, 0];
        if (missing > 0) lines.push([{}, this.#text(host('gap', BigInt(missing)))]);
        for (const [line, text] of lines) await this.#line(line, text);
        await this.#flush();
        await turn();
      }
    } catch (error) {
      await this.#fail(error);
    }
    this.#writing = undefined;
  }

  /** @param {unknown} error */
  async #fail(error) {
    if (this.#isOver) return;
    const why = `the recording in ${this.#dir} has ended, and the election goes on: it cannot be written`;
    process.nextTick(() => this.trouble(`${why} (${reason(error)})`));
    await this.#end();
  }

  /**
   * @param {Line} line
   * @param {string} text
   */
  async #line(line, text) {
    if (this.#bytes + Buffer.byteLength(text) > this.#limit / SEGMENTS) await this.#next();
    else if (now() - this.#clockTold > CLOCK_EVERY) this.#tellClock();
    this.#learn(line);
    this.#add(text);
    await this.#keepToLimit();
  }

  /** Begins the next segment, with what makes it readable without those before. */
  async #next() {
    if (this.#file) {
      await this.#flush();
      await this.#file.close();
      this.#closed.push({ file: this.#path(), bytes: this.#bytes });
    }
    this.#head.segment += 1;
    // An old handle is never closed twice.
    this.#file = undefined;
    this.#file = await open(this.#path(), 'ax', 0o600);
    [this.#bytes, this.#written] = [0, 0];
    this.#add(this.#text(this.#head));
    this.#tellClock();
    let left = this.#limit / SEGMENTS / 2;
    const elections = [...this.#known.values()].filter(({ name, key }) => {
      left -= 100 + Buffer.byteLength(name) + 2 * key.length;
      return left > 0;
    });
    if (elections.length > 0) this.#add(this.#text(host('elections', elections)));
  }

  #path() {
    return path.join(this.#dir, `${this.#head.recording}-${`${this.#head.segment}`.padStart(6, '0')}.jsonl`);
  }

  #tellClock() {
    this.#clockTold = now();
    this.#add(this.#text(host('clock', time())));
  }

  /** @param {string} text */
  #add(text) {
    this.#buffer += text;
    this.#bytes += Buffer.byteLength(text);
  }

  async #flush() {
    const text = this.#buffer;
    this.#buffer = '';
    await this.#file?.appendFile(text);
    this.#written = this.#bytes;
  }

  /** Removes the oldest files, as long as there is too much. */
  async #keepToLimit() {
    let bytes = this.#closed.reduce((sum, closed) => sum + closed.bytes, this.#bytes);
    while (bytes > this.#limit) {
      const oldest = this.#closed.shift();
      if (!oldest) return;
      await rm(oldest.file, { force: true });
      bytes -= oldest.bytes;
    }
  }

  /**
   * Keeps the names of the elections, and our keys there.
   *
   * @param {Line} line
   */
  #learn({ open: opened, events, step }) {
    if (opened) this.#known.clear();
    for (const { tag, val } of events ?? []) {
      if (tag === 'campaign') this.#known.set(val.election, { election: val.election, name: val.name, key: Buffer.of() });
    }
    for (const { tag, val: notice } of step?.commands ?? []) {
      if (tag !== 'notify') continue;
      const known = this.#known.get(notice.val?.election);
      if (notice.tag === 'withdrawn') this.#known.delete(notice.val.election);
      else if (notice.tag === 'joined' && known) known.key = notice.val.key;
    }
  }

  async #end() {
    [this.#isOver, this.#lines] = [true, []];
    underWay.delete(this.#head.recording);
    const file = this.#file;
    this.#file = undefined;
    // No line is torn. A file that cannot even be cut is read up to its last line.
    if (this.#written < this.#bytes) await file?.truncate(this.#written).catch(() => {});
    await file?.close().catch(() => {});
  }
}

/**
 * A value of the component's types as JSON.
 *
 * @param {any} value
 * @param {(bytes: Uint8Array) => string} [hide] what stands for the bytes of a value
 * @param {string} [name] of the field, or of the case whose value it is
 * @param {boolean} [mayBeWish] whether the value is at a key of a wish
 * @returns {any}
 */
export function encode(value, hide = hex, name = '', mayBeWish = false) {
  if (value === undefined) return null;
  if (typeof value === 'bigint') return value.toString();
  if (value instanceof Uint8Array) {
    // The component makes and reads wishes: without their values, no replay says the same.
    const isShown = mayBeWish && WISHES.values.test(Buffer.from(value).toString('latin1'));
    return VALUES.includes(name) && !isShown ? hide(value) : hex(value);
  }
  if (Array.isArray(value)) return value.map((item) => encode(item, hide, name, mayBeWish));
  if (typeof value !== 'object') return value;
  const at = (value.guard ?? value).key;
  const isAtWish = at ? hex(at).startsWith(WISHES.keys) : mayBeWish;
  return Object.fromEntries(Object.entries(value)
    // A case without a value has none at all.
    .filter(([key, item]) => !(key === 'val' && item === undefined))
    .map(([key, item]) => [
      key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`),
      encode(item, hide, key === 'val' ? value.tag : key, isAtWish),
    ]));
}

/** @param {Uint8Array} bytes */
function hex(bytes) {
  return Buffer.from(bytes).toString('hex');
}

/** Makes stand-ins, which tell nothing without a key that is never written. */
function standIns() {
  const key = randomBytes(32);
  return (/** @type {Uint8Array} */ value) => {
    if (value.length === 0) return '';
    const hash = createHmac('sha256', key).update(value).digest('hex').slice(0, 16);
    return `~${hash}:${Math.max(value.length, 8)}`;
  };
}

/**
 * @param {string} tag
 * @param {unknown} [val]
 * @returns {Line}
 */
function host(tag, val) {
  return { now: now(), host: { tag, val } };
}

function time() {
  return new Date().toISOString();
}

/** @param {unknown} error */
function reason(error) {
  return error instanceof Error ? error.message : String(error);
}

/**
 * The files of recordings that have ended, the oldest first. Node has no file locks: a recording
 * has ended when its process is gone.
 *
 * @param {string} dir
 */
async function ended(dir) {
  const files = [];
  for (const name of (await readdir(dir)).sort()) {
    const [, recorded, pid] = /^(\w+-(\d+)-\d+)-\d+\.jsonl$/.exec(name) ?? [];
    const isWritten = pid === `${process.pid}` ? underWay.has(`${recorded}`) : existsSync(`/proc/${pid}`);
    if (!recorded || isWritten) continue;
    const file = path.join(dir, name);
    const stats = await lstat(file).catch(() => undefined);
    if (stats?.isFile() && stats.uid === process.geteuid?.()) files.push({ file, bytes: stats.size });
  }
  return files;
}
