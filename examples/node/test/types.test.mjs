// The types: of all that is here, and as a user meets them.

import { execFileSync } from 'node:child_process';
import { test } from 'node:test';
import { fileURLToPath } from 'node:url';

test('tsc finds nothing wrong', () => {
  const here = fileURLToPath(new URL('..', import.meta.url));
  try {
    execFileSync(process.execPath, ['node_modules/typescript/bin/tsc'], { cwd: here });
  } catch (error) {
    throw new Error(String(/** @type {{ stdout?: Buffer }} */ (error).stdout ?? error));
  }
});
