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
/**
 * @typedef {object} Settings
 * @property {import('./certificates.mjs').Certificates} [certificates] it speaks TLS, as localhost,
 *   and wants certificates of its clients
 * @property {string[]} [more] more arguments of etcd's own
 */

/** @type {Version[]} */
export const VERSIONS = ['3.4', '3.5'];

const TOOLS = fileURLToPath(new URL('../../../.tools/', import.meta.url));

export class Etcd {
  /**
   * @param {Version} version
   * @param {Settings} [settings]
   */
  static async start(version, settings = {}) {
    for (let triesLeft = 4; ; triesLeft -= 1) {
      const folder = mkdtempSync(path.join(os.tmpdir(), 'incumbent-node-'));
      const etcd = new Etcd(version, folder, await freePort(), settings);
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
   * @param {Settings} [settings]
   */
  constructor(version, folder, port, { certificates, more = [] } = {}) {
    const named = process.env[`INCUMBENT_ETCD_${version.replace('.', '_')}`];
    this.program = path.join(named ?? path.join(TOOLS, `etcd-${version}`), 'etcd');
    this.folder = folder;
    this.port = port;
    this.url = certificates ? `etcds://localhost:${port}` : `etcd://127.0.0.1:${port}`;
    this.certificates = certificates;
    this.more = [...more];
    if (certificates) {
      const { ca, server } = certificates;
      this.more.push('--client-cert-auth', '--trusted-ca-file', ca, '--cert-file', server.cert, '--key-file', server.key);
    }
  }

  /** Runs it, or runs it again, until it takes connections. */
  async run() {
    const address = `${this.certificates ? 'https' : 'http'}://127.0.0.1:${this.port}`;
    // A test that is killed for taking too long leaves none behind.
    this.process = spawn('setpriv', ['--pdeathsig', 'KILL', this.program,
      '--data-dir', this.folder, '--log-level', 'error', '--logger', 'zap',
      '--listen-client-urls', address, '--advertise-client-urls', address,
      '--listen-peer-urls', 'http://127.0.0.1:0', ...this.more,
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
    const endpoint = `--endpoints=${this.certificates ? 'localhost' : '127.0.0.1'}:${this.port}`;
    const { ca, client } = this.certificates ?? {};
    const tls = client ? ['--cacert', `${ca}`, '--cert', client.cert, '--key', client.key] : [];
    return execFileSync(program, [endpoint, ...tls, ...command], { env: { ETCDCTL_API: '3' } }).toString();
  }

  /**
   * Makes a user `root`, and one who may read and write only what begins with a prefix, and has
   * everyone log in from now on.
   *
   * @param {string} user `NAME:PASSWORD`
   * @param {string} prefix
   */
  enableUsers(user, prefix) {
    this.ctl('role', 'add', 'of-the-prefix');
    this.ctl('role', 'grant-permission', '--prefix=true', 'of-the-prefix', 'readwrite', prefix);
    this.ctl('user', 'add', user);
    this.ctl('user', 'grant-role', user.replace(/:.*/, ''), 'of-the-prefix');
    this.ctl('user', 'add', 'root:secret');
    this.ctl('user', 'grant-role', 'root', 'root');
    this.ctl('auth', 'enable');
  }

  /**
   * What etcdctl answers `root`.
   *
   * @param {string[]} command
   */
  asRoot(...command) {
    return this.ctl('--user', 'root:secret', ...command);
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
