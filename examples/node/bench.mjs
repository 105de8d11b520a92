// Hands an election over for each line that it reads, and prints how many milliseconds each took:
// from the resignation to the successor's election, when that has been in line for 300 ms.
// `just bench handover` runs it in turns with the hosts in Rust and Python.
//
//     yes '' | head -60 | node bench.mjs etcd://127.0.0.1:2379

import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { Session } from './incumbent/session.mjs';

const IN_LINE = 300;
const [, , url = 'etcd://127.0.0.1:2379'] = process.argv;

const [one, two] = [await Session.connect(url), await Session.connect(url)];
let leadership = await one.campaign('handover-node');
let successor = two;
for await (const _ of createInterface({ input: process.stdin })) {
  let elected = 0;
  const next = successor.campaign('handover-node').finally(() => { elected = performance.now(); });
  await sleep(IN_LINE);
  const began = performance.now();
  await leadership.resign();
  leadership = await next;
  console.log((elected - began).toFixed(3));
  successor = successor === two ? one : two;
}
await leadership.resign();
await Promise.all([one.close(), two.close()]);
