// Leaders of an election count a number in etcd up together: each reads it, and writes it one
// higher, guarded by its term, and expecting the revision that it read. What happens is written
// down for the judges: tests/src/soak/log.rs has the lines, and what the elector did is recorded.
//
//     node counter.mjs --store etcd://127.0.0.1:2379 --process NAME --logs DIR --ttl SECONDS
//         [--election my-service] [--contest race] [--seed N]

import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { ElectionError, now, Session } from './incumbent/session.mjs';
import { openLog } from './log.mjs';

/** @import { Leadership } from './incumbent/session.mjs' */

/** Between two increments, in milliseconds. */
const PAUSE = 25;
/** How long etcd may be away at the start, in milliseconds. */
const CONNECT_TIMEOUT = 60_000;
/** How long leaving may take, in milliseconds: after that, the lease runs out by itself. */
const CLOSE_TIMEOUT = 5_000;

const options = parseArgs({
  options: {
    store: { type: 'string' },
    process: { type: 'string' },
    logs: { type: 'string' },
    election: { type: 'string', default: 'my-service' },
    contest: { type: 'string', default: 'queue' },
    ttl: { type: 'string' },
    seed: { type: 'string' },
  },
}).values;
for (const flag of /** @type {const} */ (['store', 'process', 'logs', 'ttl'])) {
  if (options[flag] === undefined) throw new Error(`--${flag} is missing`);
}
const { store = '', process: me = '', logs = '', election } = options;
const contest = options.contest === 'race' ? 'race' : 'queue';
const key = `counter-of-${election}`;

const over = new AbortController();
process.once('SIGTERM', () => over.abort());
const { write, close } = openLog(logs, me);
const random = options.seed === undefined ? undefined : generator(Number(options.seed));
let increments = 0;

const session = await connect();
session.on('extended', (leadership) => write(of('extended', leadership)));
session.on('trouble', (text) => write({ event: 'trouble', text }));
for (;;) {
  const leadership = await session.campaign(election, { contest, signal: over.signal }).catch((error) => {
    if (!over.signal.aborted) throw error;
  });
  if (!leadership) break;
  await lead(leadership);
}
await Promise.race([session.close(), sleep(CLOSE_TIMEOUT)]);
close();
process.exit(0);

async function connect() {
  const deadline = Date.now() + CONNECT_TIMEOUT;
  for (;;) {
    try {
      const record = { dir: path.join(logs, 'recordings'), values: true };
      return await Session.connect(store, { identity: me, ttl: Number(options.ttl), record });
    } catch (error) {
      if (over.signal.aborted) process.exit(0);
      if (Date.now() > deadline) throw error;
      // What was cut off will be healed.
      console.error(`not yet: ${error}`);
      await sleep(PAUSE);
    }
  }
}

/**
 * One term, which ends as this host pleases, or is lost.
 *
 * @param {Leadership} leadership
 */
async function lead(leadership) {
  write(of('elected', leadership));
  /** @param {string} reason */
  const demoted = (reason) => write({ ...of('demoted', leadership), reason });
  const stops = new AbortController();
  const works = count(leadership, stops.signal);
  const pleased = AbortSignal.any([stops.signal, over.signal]);
  const reign = random
    ? sleep(drawn(random), undefined, { signal: pleased }).catch(() => {})
    : aborted(pleased);
  const reason = await Promise.race([leadership.lost(), reign]);
  if (reason) demoted(reason);
  stops.abort();
  await works;
  // It may have been lost while the work stopped.
  if (!reason) demoted(leadership.isValid() ? 'resigned' : await leadership.lost());
  const resigned = leadership.resign();
  // At the end, `close` waits for it, and not for ever.
  if (!over.signal.aborted) await resigned;
}

/**
 * Counts until it has to stop, and once after that: what is counted after a loss is refused.
 *
 * @param {Leadership} leadership
 * @param {AbortSignal} stops
 */
async function count(leadership, stops) {
  for (let last = false; !last; await sleep(last ? 0 : PAUSE)) {
    last = stops.aborted;
    const increment = increments++;
    // Read before the answer: who leads at a later time led then.
    const mark = now();
    const leads = leadership.isValid();
    write({ event: 'invoke', election, increment, epoch: leadership.epoch, leads }, mark);
    write({ event: 'return', increment, outcome: await counted(leadership, increment) });
  }
}

/**
 * @param {Leadership} leadership
 * @param {number} increment
 * @returns {Promise<'applied' | 'nothing' | 'unknown'>}
 */
async function counted(leadership, increment) {
  let found;
  try {
    found = await session.get(key);
  } catch {
    return 'nothing';
  }
  const value = BigInt(found ? Buffer.from(found.value).toString() : 0);
  write({ event: 'read', increment, value });
  try {
    await leadership.put(key, `${value + 1n}`, { modified: found?.modified ?? 0n });
    return 'applied';
  } catch (error) {
    if (!(error instanceof ElectionError)) throw error;
    return ['stale', 'conflict', 'refused'].includes(error.code) ? 'nothing' : 'unknown';
  }
}

/**
 * @param {string} event
 * @param {Leadership} leadership
 */
function of(event, { epoch, validUntil }) {
  return { event, election, epoch, valid_until: validUntil };
}

/** @param {AbortSignal} signal */
function aborted(signal) {
  return /** @type {Promise<void>} */ (new Promise((resolve) => {
    signal.addEventListener('abort', () => resolve(), { once: true });
    if (signal.aborted) resolve();
  }));
}

/**
 * How long to lead, in milliseconds: mostly short, so that there are many elections, and
 * sometimes until something goes wrong.
 *
 * @param {() => number} draw
 */
function drawn(draw) {
  switch (Math.floor(draw() * 3)) {
    case 0: return 100 + draw() * 900;
    case 1: return 1_000 + draw() * 4_000;
    default: return 15_000;
  }
}

/**
 * Numbers from 0 up to 1, the same for a seed everywhere (mulberry32).
 *
 * @param {number} seed
 */
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}
