// What counter.mjs and many.mjs write down for the judge: a file of JSON lines for each process.

import { closeSync, openSync, writeSync } from 'node:fs';
import path from 'node:path';
import { now } from './incumbent/session.mjs';

/**
 * A new log, in a directory.
 *
 * @param {string} directory
 * @param {string} process
 */
export function openLog(directory, process) {
  const file = openSync(path.join(directory, `${process}.jsonl`), 'ax');
  return {
    /**
     * Writes a line. It is with the kernel when this returns.
     *
     * @param {object} line
     * @param {bigint} mark
     */
    write(line, mark = now()) {
      // JSON knows integers of any size, its writer in JavaScript does not.
      const text = JSON.stringify({ process, mark, ...line }, (_, value) => (
        typeof value === 'bigint' ? `${value}n` : value));
      writeSync(file, `${text.replace(/"(-?\d+)n"/g, '$1')}\n`);
    },
    close() {
      closeSync(file);
    },
  };
}
