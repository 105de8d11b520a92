// The stories in tests/transcripts/steps: the elector in Node takes the same steps, to the bit.

import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { test } from 'node:test';
import { replay } from './steps.mjs';

const stories = new URL(process.env.INCUMBENT_STEPS ?? '../../../tests/transcripts/steps/', import.meta.url);
// This folder may be alone; in the project they have to be there.
const alone = !existsSync(new URL('../../../wit/elector.wit', import.meta.url));
const skip = alone && !existsSync(stories) && `there is no ${stories.pathname}`;
const files = skip ? [] : readdirSync(stories).filter((file) => file.endsWith('.jsonl'));

test('all stories are here', { skip }, () => {
  const page = new URL('../README.md', stories);
  if (alone && !existsSync(page)) return assert.ok(files.length > 0);
  const [, count] = /(\d+) files/.exec(readFileSync(page, 'utf8')) ?? [];
  assert.equal(files.length, Number(count));
});

for (const file of files) {
  test(file, () => { replay(readFileSync(new URL(file, stories), 'utf8')); });
}
