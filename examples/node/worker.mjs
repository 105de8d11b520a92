// Campaigns, and works while it leads: start it twice, and stop the first.
//
//     node worker.mjs [ELECTION] [IDENTITY]
//
// The store is INCUMBENT_STORE, or etcd://127.0.0.1:2379.

import { setTimeout as sleep } from 'node:timers/promises';
import { Session } from './incumbent/session.mjs';

const [name = 'my-service', identity] = process.argv.slice(2);
const session = await Session.connect(process.env.INCUMBENT_STORE, { identity }).catch((error) => {
  console.error(error.message);
  process.exit(4);
});
const me = `${session.identity} (process ${process.pid})`;
session.on('trouble', (sentence) => console.error(`trouble: ${sentence}`));

const over = new AbortController();
for (const signal of ['SIGINT', 'SIGTERM']) process.once(signal, () => over.abort());

while (!over.signal.aborted) {
  console.log(`${me} waits to lead ${name}`);
  const leadership = await session.campaign(name, { signal: over.signal }).catch((error) => {
    if (!over.signal.aborted) throw error;
  });
  if (!leadership) break;
  console.log(`${me} leads ${name} in epoch ${leadership.epoch}`);
  await work(leadership).catch((error) => console.log(`the work stopped: ${error.message}`));
  console.log(`${me} leads no more: ${await leadership.resign()}`);
}
await session.close();

/**
 * Counts, in a key that only the leader of this very term can write.
 *
 * @param {import('./incumbent/session.mjs').Leadership} leadership
 */
async function work(leadership) {
  const stop = AbortSignal.any([leadership.signal, over.signal]);
  for (let step = 1; !stop.aborted; step += 1) {
    const line = `step ${step} of epoch ${leadership.epoch}`;
    await leadership.put(`${name}-progress`, line);
    console.log(line);
    await sleep(1_000, undefined, { signal: stop }).catch(() => {});
  }
}
