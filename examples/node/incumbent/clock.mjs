// The clock: monotonic, and it goes on while the machine is suspended.

import os from 'node:os';

/** How finely the system's time since its start is given, in nanoseconds. */
const STEP = 10_000_000n;
/** How often the two clocks are compared at first: a busy machine may come in between. */
const LOOKS = 10;

/**
 * A clock in nanoseconds since the start of the machine, as Linux's `CLOCK_BOOTTIME`.
 *
 * Node has `hrtime`, which is exact and stands still while the machine is suspended, and
 * `os.uptime()`, which goes on, in steps of 10 ms; a container may have an uptime of its own. So:
 * `hrtime`, and what the uptime has gained on it since now. Only a gain beyond a step is a
 * suspension, and it is rounded up: the clock never goes back, and is behind the true time by
 * less than two steps, and than any margin.
 *
 * @param {() => bigint} hrtime
 * @param {() => number} uptime in seconds
 * @returns {() => bigint}
 */
export function bootClock(hrtime = process.hrtime.bigint, uptime = os.uptime) {
  // In this order: what comes between the two now is counted as suspended later, not the reverse.
  const ahead = () => BigInt(Math.round(uptime() * 1e9)) - hrtime();
  // The comparison that nothing came in between shows the most.
  const start = Array.from({ length: LOOKS }, ahead).reduce((most, one) => (one > most ? one : most));
  let suspended = 0n;
  return () => {
    const gain = ahead() - start;
    if (gain > suspended + STEP) suspended = gain + STEP;
    return hrtime() + suspended;
  };
}

if (process.platform !== 'linux') {
  throw new Error(`this host's clock is right on Linux only: on ${process.platform}, os.uptime()`
    + ' hangs on the wall clock, and a leader could outstay its lease');
}

/** This process's clock. */
export const now = bootClock();

/**
 * Calls `due` when the clock shows `mark`: in pieces of a second, because timers know nothing
 * of suspended time, and take 2³¹ − 1 ms at most. Gives back what calls it off.
 *
 * @param {bigint} mark
 * @param {() => void} due
 * @returns {() => void}
 */
export function at(mark, due) {
  /** @type {NodeJS.Timeout} */
  let timer;
  const look = () => {
    const left = milliseconds(mark - now());
    if (left > 0) timer = setTimeout(look, Math.min(left, 1_000));
    else due();
  };
  timer = setTimeout(look, Math.min(milliseconds(mark - now()), 1_000));
  return () => clearTimeout(timer);
}

/**
 * A span of nanoseconds in whole milliseconds, rounded up: what is due is not early.
 *
 * @param {bigint} span
 */
export function milliseconds(span) {
  return span > 0n ? Number((span + 999_999n) / 1_000_000n) : 0;
}
