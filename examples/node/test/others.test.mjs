// One queue with the candidates of the `etcd3` package, whose keys end in their lease's id in decimal.

import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { after, before, describe, test } from 'node:test';
import { Etcd, eventually, VERSIONS } from './etcd.mjs';

const NAME = 'election/jobs';

// Each says `leads` once it does, and gives the leadership back at any input.
const CANDIDATES = {
  theirs: `
    import { Etcd3 } from 'etcd3';
    const client = new Etcd3({ hosts: process.argv[1].replace('etcd:', 'http:') });
    const campaign = client.election('jobs', 2).campaign('theirs');
    await campaign.wait();
    console.log('leads');
    process.stdin.once('data', () => campaign.resign().then(() => process.exit()));`,
  ours: `
    import { Session } from '${new URL('../incumbent/session.mjs', import.meta.url)}';
    const session = await Session.connect(process.argv[1], { ttl: 2 });
    const leadership = await session.campaign('${NAME}');
    console.log('leads');
    process.stdin.once('data', () => leadership.resign().then(() => process.exit()));`,
};

class Candidate {
  /** @param {keyof typeof CANDIDATES} kind @param {string} url */
  constructor(kind, url) {
    const code = ['--input-type=module', '--eval', CANDIDATES[kind], url];
    const cwd = new URL('..', import.meta.url);
    this.process = spawn(process.execPath, code, { cwd, stdio: ['pipe', 'pipe', 'inherit'] });
    this.leads = false;
    this.process.stdout.on('data', () => { this.leads = true; });
    this.ended = once(this.process, 'exit');
  }
}

for (const version of VERSIONS) {
  describe(`etcd ${version}`, () => {
    /** @type {Etcd} */
    let etcd;
    before(async () => { etcd = await Etcd.start(version); });
    after(() => etcd.stop());

    for (const killed of [false, true]) {
      test(`each waits for the other, which ${killed ? 'is killed' : 'resigns'}`, async () => {
        /** @type {Candidate[]} */
        const line = [];
        for (const kind of /** @type {const} */ (['theirs', 'ours', 'theirs', 'ours', 'ours', 'theirs'])) {
          line.push(new Candidate(kind, etcd.url));
          await eventually(() => etcd.keys(`${NAME}/`).length === line.length, `${kind} is in line`);
        }
        for (let first = 0; first < line.length; first += 1) {
          await eventually(() => line[first]?.leads ?? true, `number ${first} leads`);
          assert.ok(line.every(({ leads }, number) => leads === (number <= first)), 'one at a time');
          if (killed) line[first]?.process.kill('SIGKILL');
          else line[first]?.process.stdin.write('resign\n');
          await line[first]?.ended;
        }
        await eventually(() => etcd.keys(`${NAME}/`).length === 0, 'nothing is left');
      });
    }
  });
}
