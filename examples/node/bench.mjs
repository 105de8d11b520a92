// How long the next leader takes: from a resignation to the successor's election, when the
// successor has been in line for 300 ms. The floor, in turns with it, is one delete, one watch
// event and one read with etcd3 alone, on the same etcd; beside the times of the host in Rust
// (`just bench handover`), one sees what Node costs.
//
//     node bench.mjs [ROUNDS] [etcd://HOST:PORT]

import { once } from 'node:events';
import { setTimeout as sleep } from 'node:timers/promises';
import { Etcd3 } from 'etcd3';
import { Session } from './incumbent/session.mjs';
import { Etcd, VERSIONS } from './test/etcd.mjs';

const SETTLED = 300;
const rounds = Number(process.argv[2] ?? 60);
const url = process.argv[3];

if (url) {
  await measure(url, url);
} else {
  for (const version of VERSIONS) {
    const etcd = await Etcd.start(version);
    try {
      await measure(`etcd ${version}`, etcd.url);
    } finally {
      await etcd.stop();
    }
  }
}

/**
 * @param {string} what
 * @param {string} url
 */
async function measure(what, url) {
  const etcd3 = new Etcd3({ hosts: url.replace('etcd:', 'http:') });
  const [one, two] = [await Session.connect(url), await Session.connect(url)];
  /** @type {number[]} */
  const times = [];
  /** @type {number[]} */
  const floors = [];
  let leadership = await one.campaign('handover');
  for (let round = 1; round <= rounds; round += 1) {
    floors.push(await floor(etcd3));
    let elected = 0;
    const next = (round % 2 ? two : one).campaign('handover').finally(() => { elected = performance.now(); });
    await sleep(SETTLED);
    const began = performance.now();
    await leadership.resign();
    leadership = await next;
    times.push(elected - began);
  }
  await leadership.resign();
  await Promise.all([one.close(), two.close()]);
  etcd3.close();
  console.log(`${what}, ${rounds} rounds, resign to elected`);
  for (const percent of [50, 90, 99]) {
    const [ours, least] = [percentile(times, percent), percentile(floors, percent)];
    console.log(`  p${percent}: floor ${least.toFixed(2)} ms, ours ${ours.toFixed(2)} ms,`
      + ` ratio ${(ours / least).toFixed(2)}`);
  }
}

/** @param {Etcd3} etcd3 */
async function floor(etcd3) {
  await etcd3.put('floor').value('');
  const watcher = await etcd3.watch().key('floor').create();
  await sleep(SETTLED);
  const began = performance.now();
  const gone = once(watcher, 'delete');
  const deleted = etcd3.delete().key('floor');
  await Promise.all([gone, gone.then(() => etcd3.get('floor')), deleted]);
  const took = performance.now() - began;
  await watcher.cancel();
  return took;
}

/**
 * @param {number[]} times
 * @param {number} percent
 */
function percentile(times, percent) {
  const sorted = times.toSorted((a, b) => a - b);
  return sorted[Math.floor((sorted.length - 1) * percent / 100)] ?? NaN;
}
