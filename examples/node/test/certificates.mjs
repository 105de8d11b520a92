// Certificates of a test's own, made by openssl.

import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import os from 'node:os';
import path from 'node:path';

/** @typedef {{ cert: string, key: string }} Pair the files of a certificate and its key */

/** A CA, and what it has signed for an etcd on `localhost` and for a client of it. */
export class Certificates {
  #folder = mkdtempSync(path.join(os.tmpdir(), 'incumbent-node-certificates-'));

  constructor() {
    this.ca = this.#make('ca').cert;
    this.server = this.#make('server', '-addext', 'subjectAltName=DNS:localhost');
    this.client = this.#make('client', '-addext', 'extendedKeyUsage=clientAuth');
  }

  /**
   * @param {string} name
   * @param {string[]} more
   * @returns {Pair}
   */
  #make(name, ...more) {
    const file = (/** @type {string} */ ending) => path.join(this.#folder, ending);
    const [cert, key] = [file(`${name}.pem`), file(`${name}.key`)];
    const signer = name === 'ca' ? [] : ['-CA', file('ca.pem'), '-CAkey', file('ca.key'),
      '-addext', 'basicConstraints=critical,CA:FALSE'];
    execFileSync('openssl', ['req', '-x509', '-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1',
      '-nodes', '-days', '2', '-subj', `/CN=${name}`, '-out', cert, '-keyout', key, ...signer, ...more,
    ], { stdio: 'pipe' });
    return { cert, key };
  }

  /** Puts a certificate that has expired in the place of etcd's, which etcd reads for each connection. */
  expire() {
    const { cert, key } = this.server;
    const openssl = (/** @type {string[]} */ ...command) => (
      execFileSync('openssl', command, { cwd: this.#folder, stdio: 'pipe' }));
    openssl('req', '-new', '-key', key, '-subj', '/CN=server', '-addext', 'subjectAltName=DNS:localhost', '-out', 'old.csr');
    openssl('x509', '-req', '-in', 'old.csr', '-copy_extensions', 'copy', '-CA', 'ca.pem', '-CAkey', 'ca.key',
      '-days', '-1', '-out', cert);
  }

  remove() {
    rmSync(this.#folder, { recursive: true });
  }
}
