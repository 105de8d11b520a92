// How long the next leader takes: from a resignation to the successor's election, the successor
// having been in line for 300 ms; on an etcd of its own, or the one that is named.
//
//     node bench.mjs [ROUNDS] [etcd://HOST:PORT]

import { setTimeout as sleep } from 'node:timers/promises';
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
  const sessions = [await Session.connect(url), await Session.connect(url)];
  /** @type {number[]} */
  const times = [];
  let leadership = await sessions[0]?.campaign('handover');
  for (let round = 1; round <= rounds; round += 1) {
    const next = sessions[round % 2]?.campaign('handover').then((won) => {
      times.push(performance.now() - began);
      return won;
    });
    await sleep(SETTLED);
    const began = performance.now();
    await leadership?.resign();
    leadership = await next;
  }
  await leadership?.resign();
  for (const session of sessions) await session.close();

  times.sort((a, b) => a - b);
  const at = (/** @type {number} */ share) => times[Math.floor((times.length - 1) * share)]?.toFixed(2);
  console.log(`${what}, ${rounds} rounds: resign to elected p50 ${at(0.5)} ms, p90 ${at(0.9)} ms, p99 ${at(0.99)} ms`);
}
