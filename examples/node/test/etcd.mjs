// An etcd of a test's own, on a free port, in a folder of its own.

import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import os from 'node:os';
import path from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';

/** @typedef {'3.4' | '3.5'} Version */

/** @type {Version[]} */
export const VERSIONS = ['3.4', '3.5'];

const TOOLS = fileURLToPath(new URL('../../../.tools/', import.meta.url));

export class Etcd {
  /**
   * @param {Version} version
   */
  static async start(version) {
    for (let triesLeft = 4; ; triesLeft -= 1) {
      const folder = mkdtempSync(path.join(os.tmpdir(), 'incumbent-node-'));
      const etcd = new Etcd(version, folder, await freePort());
      try {
        await etcd.run();
        return etcd;
      } catch (error) {
        // Another process may have taken the port meanwhile.
        await etcd.stop();
        if (triesLeft === 0) throw error;
      }
    }
  }

  /**
   * @param {Version} version
   * @param {string} folder
   * @param {number} port
   */
  constructor(version, folder, port) {
    const named = process.env[`INCUMBENT_ETCD_${version.replace('.', '_')}`];
    this.program = path.join(named ?? path.join(TOOLS, `etcd-${version}`), 'etcd');
    this.folder = folder;
    this.port = port;
    this.url = `etcd://127.0.0.1:${port}`;
  }

  /** Runs it, or runs it again, until it takes connections. */
  async run() {
    const address = `http://127.0.0.1:${this.port}`;
    // A test that is killed for taking too long leaves none behind.
    this.process = spawn('setpriv', ['--pdeathsig', 'KILL', this.program,
      '--data-dir', this.folder, '--log-level', 'error', '--logger', 'zap',
      '--listen-client-urls', address, '--advertise-client-urls', address,
      '--listen-peer-urls', 'http://127.0.0.1:0',
    ], { stdio: 'ignore' });
    const child = this.process;
    const hasEnded = () => child.exitCode !== null || child.signalCode !== null;
    await eventually(async () => hasEnded() || await connects(this.port), `${this.program} serves`);
    if (hasEnded()) throw new Error(`${this.program} has ended before it served port ${this.port}`);
  }

  /** Ends it at once, as a crash does; what it has stored stays. */
  async crash() {
    this.process?.kill('SIGKILL');
    if (this.process && this.process.exitCode === null && this.process.signalCode === null) {
      await once(this.process, 'exit');
    }
  }

  /**
   * What etcdctl answers.
   *
   * @param {string[]} command
   */
  ctl(...command) {
    const program = path.join(path.dirname(this.program), 'etcdctl');
    const endpoint = `--endpoints=127.0.0.1:${this.port}`;
    return execFileSync(program, [endpoint, ...command], { env: { ETCDCTL_API: '3' } }).toString();
  }

  /**
   * The keys that begin with `prefix`.
   *
   * @param {string} prefix
   */
  keys(prefix) {
    return this.ctl('get', '--prefix', '--keys-only', prefix).split('\n').filter(Boolean);
  }

  async stop() {
    await this.crash();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** @returns {Promise<number>} */
export function freePort() {
  return new Promise((resolve) => {
    const server = net.createServer().listen(0, '127.0.0.1', () => {
      const { port } = /** @type {net.AddressInfo} */ (server.address());
      server.close(() => resolve(port));
    });
  });
}

/**
 * @param {number} port
 * @returns {Promise<boolean>}
 */
function connects(port) {
  return new Promise((resolve) => {
    const socket = net.connect(port, '127.0.0.1');
    socket.on('connect', () => resolve(true)).on('error', () => resolve(false));
    socket.on('connect', () => socket.destroy());
  });
}

/**
 * Waits for a condition, a minute at most.
 *
 * @param {() => unknown} holds
 * @param {string} what
 */
export async function eventually(holds, what) {
  const deadline = Date.now() + 60_000;
  while (!await holds()) {
    if (Date.now() > deadline) throw new Error(`in vain: ${what}`);
    await sleep(5);
  }
}
