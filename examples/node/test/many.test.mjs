// One process leads a thousand elections on one lease, and hands them over to another session.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Session } from '../incumbent/session.mjs';
import { Etcd, VERSIONS } from './etcd.mjs';

const NAMES = Array.from({ length: 1_000 }, (_, number) => `many-${String(number).padStart(5, '0')}`);

for (const version of VERSIONS) {
  test(`a thousand elections on etcd ${version}`, async (t) => {
    const etcd = await Etcd.start(version);
    t.after(() => etcd.stop());
    const [one, two] = [await Session.connect(etcd.url), await Session.connect(etcd.url)];
    /** @type {string[]} */
    const troubles = [];
    for (const session of [one, two]) session.on('trouble', (trouble) => troubles.push(trouble));

    const began = performance.now();
    const led = await Promise.all(NAMES.map((name) => one.campaign(name)));
    const won = performance.now();
    const next = NAMES.map((name) => two.campaign(name));
    await Promise.all(led.map((leadership) => leadership.resign()));
    const followed = await Promise.all(next);
    const handed = performance.now();
    const { rss } = process.memoryUsage();
    t.diagnostic(`won in ${(won - began).toFixed(0)} ms, handed over in ${(handed - won).toFixed(0)} ms, `
      + `${(rss / 2 ** 20).toFixed(0)} MiB`);

    assert.ok(followed.every((leadership) => leadership.isValid()));
    assert.ok(followed.every(({ epoch }, number) => epoch > (led[number]?.epoch ?? epoch)));
    assert.deepEqual(troubles, []);
    await Promise.all(followed.map((leadership) => leadership.resign()));
    await Promise.all([one.close(), two.close()]);
  });
}
