// What can go wrong, as an application sees it.

/** @import { Failure } from '../component/interfaces/incumbent-election-types.js' */

/**
 * Why something did not come about; `code` is for programs:
 *
 * - `unreachable`: no etcd answers, or it refuses us
 * - `configuration`: what was given or asked for cannot be
 * - `withdrawn`: the store refuses the candidacy
 * - `closed`: the session is closed
 * - `lost`: the term is over (the reason of a leadership's `signal`)
 * - `stale`: the term is over, and nothing was changed
 * - `conflict`: the key is not at the revision expected, and nothing was changed
 * - `unknown`: no answer. It may have been written, and may be yet, as long as the term's key is
 *   there: write that key again only with `modified`, or in another term
 * - `refused`: the store refuses the write; nothing was changed
 *
 * @typedef {'unreachable' | 'configuration' | 'withdrawn' | 'closed' | 'lost' | 'stale' | 'conflict'
 *   | 'unknown' | 'refused'} Code
 */

/** Why something did not come about. */
export class ElectionError extends Error {
  /**
   * @param {Code} code
   * @param {string} message
   * @param {unknown} [cause]
   */
  constructor(code, message, cause) {
    super(message, { cause });
    this.name = 'ElectionError';
    this.code = code;
  }
}

/**
 * A failure of the store's, for a person.
 *
 * @param {Failure} failure
 */
export function sentence(failure) {
  switch (failure.tag) {
    case 'timeout': return 'etcd did not answer in time';
    case 'unavailable': return 'etcd was not reached, or is not ready';
    case 'compacted': return `etcd has dropped what came before revision ${failure.val}`;
    case 'denied': return `etcd denies it: ${failure.val}`;
    case 'invalid': case 'other': return failure.val;
  }
}
