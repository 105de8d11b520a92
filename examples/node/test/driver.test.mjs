// The loop, with electors that say what a test wants.

import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Driver } from '../incumbent/driver.mjs';

test('what an elector asked for is not told to the next one', async () => {
  /** @type {(outcome: any) => void} */
  let answer = () => {};
  /** @type {(change: any) => void} */
  let tell = () => {};
  let watching = true;
  const store = /** @type {any} */ ({
    ask: () => new Promise((resolve) => { answer = resolve; }),
    watch: (/** @type {any} */ _, /** @type {any} */ told) => {
      tell = told;
      return () => { watching = false; };
    },
  });
  /** @type {string[][]} */
  const given = [];
  let opens = 0;
  /** @type {bigint[]} */
  const seeds = [];
  const open = (/** @type {any} */ { seed }) => {
    opens += 1;
    if (opens === 2) throw new Error('another trap');
    const events = /** @type {string[]} */ ([]);
    given.push(events);
    seeds.push(...seed);
    return /** @type {any} */ ({
      handle(/** @type {bigint} */ _, /** @type {any[]} */ batch) {
        events.push(...batch.map(({ tag }) => tag));
        if (batch.some(({ tag }) => tag === 'close')) throw new Error('a trap');
        const commands = [
          { tag: 'call', val: { id: 1n, giveUp: 0n, operation: { tag: 'keep-alive', val: 1n } } },
          { tag: 'watch', val: { id: 2n, key: Buffer.of(), prefix: false } },
        ];
        return { commands: given.length === 1 ? commands : [] };
      },
    });
  };
  const config = { leaseTtl: 1n, safetyMargin: 0n, requestTimeout: 1n };
  /** @type {string[]} */
  const broke = [];
  const driver = new Driver({
    config, store, open, notify() {}, broken: ({ message }) => broke.push(message), replaced() {},
  });
  driver.push({ tag: 'wake' });
  await new Promise((turn) => setImmediate(turn));
  driver.push({ tag: 'close' });
  await new Promise((turn) => setImmediate(turn));
  assert.deepEqual(broke, ['a trap']);
  assert.ok(!watching && !driver.isRunning);
  while (!driver.isRunning) await new Promise((turn) => setImmediate(turn));
  assert.deepEqual(broke, ['a trap', 'another trap'], 'one that does not open is broken too');
  answer({ tag: 'ok', val: { tag: 'expired' } });
  tell({ tag: 'ended', val: { tag: 'timeout' } });
  driver.push({ tag: 'wake' });
  await new Promise((turn) => setImmediate(turn));
  assert.deepEqual(given, [['wake', 'close'], ['wake']]);
  assert.equal(new Set(seeds).size, 4, 'a new seed');
  driver.stop();
});
