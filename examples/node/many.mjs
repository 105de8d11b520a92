// Leads many elections on one session, until SIGTERM, which the next candidates wait for. It prints a
// line once it leads all of them. Its terms are written down for the judge, as in counter.mjs.
//
//     node many.mjs --store etcd://127.0.0.1:2379 --process NAME --logs DIR --elections COUNT

import { once } from 'node:events';
import { closeSync, openSync, writeSync } from 'node:fs';
import path from 'node:path';
import { parseArgs } from 'node:util';
import { now, Session } from './incumbent/session.mjs';

/** @import { Leadership } from './incumbent/session.mjs' */

const options = parseArgs({
  options: {
    store: { type: 'string' },
    process: { type: 'string' },
    logs: { type: 'string' },
    elections: { type: 'string' },
  },
}).values;
for (const flag of /** @type {const} */ (['store', 'process', 'logs', 'elections'])) {
  if (options[flag] === undefined) throw new Error(`--${flag} is missing`);
}
const { store, process: me = '', logs = '' } = options;
const names = Array.from({ length: Number(options.elections) }, (_, number) => (
  `many-${String(number).padStart(6, '0')}`));

const over = once(process, 'SIGTERM');
const log = openSync(path.join(logs, `${me}.jsonl`), 'ax');
const session = await Session.connect(store, { identity: me });
session.on('trouble', (text) => write({ event: 'trouble', text }));
let leading = 0;
await Promise.all(names.map(lead));
await session.close();
closeSync(log);

/**
 * One term, until SIGTERM or a loss.
 *
 * @param {string} name
 */
async function lead(name) {
  const leadership = await session.campaign(name);
  write(of('elected', leadership));
  if (++leading === names.length) console.log('leads');
  await Promise.race([leadership.lost(), over]);
  const reason = leadership.isValid() ? 'resigned' : await leadership.lost();
  write({ ...of('demoted', leadership), reason });
  await leadership.resign();
}

/**
 * @param {string} event
 * @param {Leadership} leadership
 */
function of(event, { name, epoch, validUntil }) {
  return { event, election: name, epoch, valid_until: validUntil };
}

/** @param {object} line */
function write(line) {
  // JSON knows integers of any size, its writer in JavaScript does not.
  const text = JSON.stringify({ process: me, mark: now(), ...line }, (_, value) => (
    typeof value === 'bigint' ? `${value}n` : value));
  writeSync(log, `${text.replace(/"(-?\d+)n"/g, '$1')}\n`);
}
