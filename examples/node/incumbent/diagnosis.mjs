// Finds out why a member refused us, by a second attempt, so that the error can say what to correct.

import { isIP } from 'node:net';
import tls from 'node:tls';

/** @import { Access } from './access.mjs' */

/** How long the attempt may take, in milliseconds. */
const TIMEOUT = 1_000;

/**
 * Names the fault in a member's TLS, in a sentence; `undefined` if TLS is not at fault.
 *
 * @param {string} host `HOST:PORT`
 * @param {Access} access
 * @returns {Promise<string | undefined>}
 */
export async function objection(host, { certificates }) {
  const [, name = '', port] = /^\[?(.*?)\]?:(\d+)$/.exec(host) ?? [];
  const code = await handshake({
    host: name,
    port: Number(port),
    servername: isIP(name) ? '' : name,
    ALPNProtocols: ['h2'],
    // Without certificates, any answer in TLS counts.
    ...(certificates ?? { rejectUnauthorized: false }),
  });
  const isTls = code === '' || /^(ERR_TLS|CERT_)|ALERT|CERT$|SIGNATURE|ISSUER/.test(code);
  if (!certificates) return isTls ? 'it speaks TLS: write etcds:// in place of etcd://' : undefined;
  switch (code) {
    case 'CERT_HAS_EXPIRED':
      return 'its certificate has expired: renew it, unless it is this machine\'s clock that is wrong';
    case 'CERT_NOT_YET_VALID':
      return 'its certificate is not valid yet: wait, unless it is this machine\'s clock that is wrong';
    case 'ERR_TLS_CERT_ALTNAME_INVALID':
      return `its certificate is not for ${name}: name it in the URL as it is there`;
    case 'ERR_SSL_WRONG_VERSION_NUMBER': case 'ERR_SSL_PACKET_LENGTH_TOO_LONG': case 'ECONNRESET':
      return 'it does not speak TLS: write etcd:// in place of etcds://';
  }
  if (/ALERT.*EXPIRED/.test(code)) return 'our certificate `tls.cert` has expired: renew it';
  if (/ALERT/.test(code)) {
    return certificates.cert
      ? 'it does not take our certificate: give one that its CA has signed, for clients, as `tls.cert` and `tls.key`'
      : 'it wants a certificate of ours: give one that its CA has signed, as `tls.cert` and `tls.key`';
  }
  if (/CERT|SIGNATURE|ISSUER/.test(code)) {
    return 'its certificate is signed by nobody that we trust: give the CA that signed it as `tls.ca`';
  }
  return undefined;
}

/**
 * Gives the code of the error, or '' if there is none. In TLS 1.3, etcd rejects our certificate only
 * after our side has finished, so this waits for etcd's first byte.
 *
 * @param {tls.ConnectionOptions} options
 * @returns {Promise<string>}
 */
function handshake(options) {
  return new Promise((resolve) => {
    const socket = tls.connect({ ...options, timeout: TIMEOUT });
    /** @param {string} code */
    const end = (code) => {
      socket.destroy();
      resolve(code);
    };
    socket.on('data', () => end(''));
    socket.on('timeout', () => end('ETIMEDOUT'));
    socket.on('close', () => end('ECONNRESET'));
    socket.on('error', (/** @type {NodeJS.ErrnoException} */ { code = '' }) => end(code || 'ECONNRESET'));
  });
}
