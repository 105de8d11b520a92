// What an application gives, looked at before the elector does: of what does not fit its types
// it would break, and with it all that the session has.

import { inspect } from 'node:util';
import { isUint8Array } from 'node:util/types';
import { ElectionError } from './errors.mjs';

/** @import { Contest } from '../component/interfaces/incumbent-election-types.js' */
/** @import { Recording } from './recorder.mjs' */

/** How many bytes a recording may take: the least, and unless given. */
const [LEAST, USUAL] = [64 << 10, 64 << 20];

/**
 * @param {string} what
 * @param {unknown} given
 */
export function text(what, given) {
  return typeof given === 'string' && given.isWellFormed() ? given : refuse(what, given, 'a string');
}

/**
 * @param {string} what
 * @param {unknown} given
 */
export function bytes(what, given) {
  if (isUint8Array(given)) return Buffer.from(given);
  if (typeof given === 'string' && given.isWellFormed()) return Buffer.from(given);
  return refuse(what, given, 'a string or a Uint8Array');
}

/**
 * @param {unknown} given
 * @returns {Contest}
 */
export function contest(given) {
  return given === 'queue' || given === 'race' ? given : refuse('contest', given, "'queue' or 'race'");
}

/** @param {unknown} given */
export function priority(given) {
  const fits = typeof given === 'number' && Number.isInteger(given) && Math.abs(given) < 2 ** 31;
  return fits ? given : refuse('priority', given, 'a whole number');
}

/**
 * @param {string} what
 * @param {unknown} given
 */
export function count(what, given) {
  const fits = typeof given === 'number' && Number.isInteger(given) && given > 0 && given < 2 ** 32;
  return fits ? given : refuse(what, given, 'a whole number from 1 on');
}

/** @param {unknown} given */
export function revision(given) {
  const fits = given === undefined || (typeof given === 'bigint' && given >= 0n && given < 2n ** 63n);
  return fits ? given : refuse('modified', given, 'a revision, which is a BigInt');
}

/**
 * A number of seconds, in nanoseconds.
 *
 * @param {string} what
 * @param {unknown} given
 */
export function seconds(what, given) {
  const fits = typeof given === 'number' && given >= 0 && given <= 1e9;
  return fits ? BigInt(Math.round(given * 1e9)) : refuse(what, given, 'a number of seconds');
}

/**
 * @param {Recording} given
 * @returns {Required<Recording>}
 */
export function recording({ dir, limit = USUAL, values = false }) {
  const path = typeof dir === 'string' && dir !== '' ? dir : refuse('record.dir', dir, 'the path of a directory');
  const fits = Number.isSafeInteger(limit) && limit >= LEAST;
  if (!fits) refuse('record.limit', limit, `a number of bytes, ${LEAST} at least`);
  return { dir: path, limit, values: values === true };
}

/**
 * @param {string} what
 * @param {unknown} given
 * @param {string} wanted
 * @returns {never}
 */
function refuse(what, given, wanted) {
  const shown = inspect(given, { depth: 0, maxStringLength: 40, maxArrayLength: 4 });
  throw new ElectionError('configuration', `${what}: ${shown} is not ${wanted}`);
}
