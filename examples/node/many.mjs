// Leads many elections on one session, until SIGTERM, which the next candidates wait for. It prints a
// line once it leads all of them. Its terms are written down for the judge, as in counter.mjs.
//
//     node many.mjs --store etcd://127.0.0.1:2379 --process NAME --logs DIR --elections COUNT

import { once } from 'node:events';
import { parseArgs } from 'node:util';
import { Session } from './incumbent/session.mjs';
import { openLog } from './log.mjs';

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
const { write, close } = openLog(logs, me);
const session = await Session.connect(store, { identity: me });
session.on('trouble', (text) => write({ event: 'trouble', text }));
let leading = 0;
await Promise.all(names.map(lead));
await session.close();
close();

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
