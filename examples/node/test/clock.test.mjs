// The clock, with a machine that is suspended, and with the one that there is.

import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import os from 'node:os';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';
import { at, bootClock, milliseconds, now } from '../incumbent/clock.mjs';

const STEP = 10_000_000n;

test('it goes on while the machine is suspended, never back, and is behind by less than two steps', () => {
  // The uptime of the machine, and of containers that began later, or that have another origin.
  for (const since of [0n, 5_000_000_000n, 900_000_000_000n, -7_200_000_004_321n]) goesOn(since);
});

/** @param {bigint} since when the uptime began, by hrtime */
function goesOn(since) {
  let awake = 905_000_000_123n;
  let suspended = 0n;
  // As Linux gives it: the whole time, in steps.
  const clock = bootClock(() => awake, () => Number((awake - since + suspended) / STEP) / 100);
  let last = clock();
  assert.equal(last, awake, 'exact on a machine that is not suspended');
  for (const [wakes = 0n, sleeps = 0n] of [
    [1n, 0n], [7_777_777n, 0n], [1_000_000_000n, 0n], [3n, 9_999_999n], [5n, 9_999_999n],
    [12_345_678n, 3_600_000_000_000n], [1n, 0n], [STEP, 0n], [999_999_999n, STEP + 1n], [1n, 0n],
    [1n, 3n * STEP], [7n, 2n * STEP], [1n, 4n * STEP],
  ]) {
    awake += wakes;
    suspended += sleeps;
    const mark = clock();
    assert.ok(mark >= last, 'never back');
    const behind = awake + suspended - mark;
    assert.ok(behind < 2n * STEP && behind > -2n * STEP, `behind by ${behind}`);
    if (sleeps >= 4n * STEP) assert.ok(behind <= 0n, 'what is longer is counted at once, and whole');
    last = mark;
  }
}

test('a pause while it starts is no suspension', () => {
  let awake = 905_000_000_123n;
  let pause = 2n * STEP;
  const clock = bootClock(() => awake, () => {
    const uptime = Number(awake / STEP) / 100;
    awake += pause;
    pause = 0n;
    return uptime;
  });
  for (let turns = 0; turns < 20; turns += 1) {
    assert.equal(clock(), awake);
    awake += STEP / 10n;
  }
});

test('where no clock serves, the host says so, and does not start', () => {
  const elsewhere = "data:text/javascript,Object.defineProperty(process, 'platform', { value: 'darwin' })";
  const clock = fileURLToPath(new URL('../incumbent/clock.mjs', import.meta.url));
  const { status, stderr } = spawnSync(process.execPath, ['--import', elsewhere, clock], { encoding: 'utf8' });
  assert.notEqual(status, 0);
  assert.match(stderr, /right on Linux only: on darwin/);
});

test("this Node's os.uptime() moves in steps of 10 ms, and counts what hrtime counts", () => {
  // The largest, for whatever comes between the two makes it smaller.
  const ahead = () => Array.from({ length: 100 }, () => (
    BigInt(Math.round(os.uptime() * 1e9)) - process.hrtime.bigint())).reduce((a, b) => (a > b ? a : b));
  const start = ahead();
  // A busy machine takes several steps as one: the time until one is alone is not known.
  const until = process.hrtime.bigint() + 60_000_000_000n;
  let shortest = Infinity;
  for (let last = os.uptime(); shortest > 0.0101 && process.hrtime.bigint() < until;) {
    const uptime = os.uptime();
    if (uptime !== last) shortest = Math.min(shortest, uptime - last);
    last = uptime;
  }
  assert.ok(shortest > 0.0099 && shortest < 0.0101, `${shortest}`);
  const gained = ahead() - start;
  assert.ok(gained < 2n * STEP && gained > -2n * STEP, `${gained}`);
  const before = now();
  assert.ok(now() >= before);
});

test('it waits for longer than a timer can, and can be called off', async () => {
  let due = false;
  const callOff = at(now() + 10n ** 18n, () => { due = true; });
  await new Promise((passes) => at(now() + 20_000_000n, () => passes(undefined)));
  assert.ok(!due);
  callOff();
  assert.deepEqual([-1n, 0n, 1n, 1_000_000n, 1_000_001n].map(milliseconds), [0, 0, 1, 1, 2]);
  const mark = now() + 3_000_000n;
  await new Promise((passes) => at(mark, () => passes(undefined)));
  assert.ok(now() >= mark, 'never early');
});
