// Work that is done where it leads, and nowhere else: counts up in etcd, once a second, in a key
// that only the leader of this very term can write.

import leadership from 'incumbent:election/leadership@0.1.0';
import stdout from 'wasi:cli/stdout@0.2.12';

const KEY = bytes('jobs/count');
const SECOND = 1_000_000_000;

export const run = {
  run() {
    const output = stdout.getStdout();
    /** @param {string} line */
    const say = (line) => output.blockingWriteAndFlush(bytes(`${line}\n`));

    const term = leadership.elected(null);
    say(`${leadership.id()} leads ${leadership.election()} in epoch ${term.epoch()}`);
    let standing = term.standing();
    while (standing.tag === 'firm') {
      const before = term.get(KEY);
      const count = before ? Number(text(before.value)) + 1 : 1;
      // Refused (it throws) once the term is over, or where somebody else wrote meanwhile.
      term.put(KEY, bytes(String(count)), before ? before.modified : 0);
      say(`counted to ${count}`);
      // A second's rest, unless the term ends or has to.
      standing = term.changed(standing, SECOND);
    }
    say(`no longer: ${standing.tag}`);
  },
};

/** @param {string} ascii */
function bytes(ascii) {
  return Uint8Array.from(ascii, (letter) => letter.charCodeAt(0));
}

/** @param {Uint8Array} bytes */
function text(bytes) {
  return String.fromCharCode(...bytes);
}
