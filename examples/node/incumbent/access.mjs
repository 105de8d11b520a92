// How to reach etcd: its URL, our certificates, our user, and the prefix of all keys.

import { existsSync, readFileSync } from 'node:fs';
import { readFile } from 'node:fs/promises';
import { isIPv6 } from 'node:net';
import { createSecureContext } from 'node:tls';
import { text } from './arguments.mjs';
import { ElectionError } from './errors.mjs';

/**
 * PEM files, for `etcds://`.
 *
 * @typedef {object} Tls
 * @property {string} [ca] the authorities that signed etcd's certificate: the system's unless given
 * @property {string} [cert] our own certificate; goes with `key`
 * @property {string} [key] the key of our own certificate
 */

/**
 * @typedef {object} Credentials
 * @property {Tls} [tls]
 * @property {string} [user] the user to log in as; goes with `passwordFile`
 * @property {string} [passwordFile] a file whose first line is the user's password; it is read at
 *   each login
 */

/** @typedef {{ ca: Buffer, cert?: Buffer, key?: Buffer }} Certificates */

/** Where etcd listens unless it is told otherwise. */
const PORT = 2379;
/** Where the authorities of a Linux system are: Debian, Fedora, SUSE, Alpine. */
const AUTHORITIES = ['/etc/ssl/certs/ca-certificates.crt', '/etc/pki/tls/certs/ca-bundle.crt',
  '/etc/ssl/ca-bundle.pem', '/etc/ssl/cert.pem'];

/** The parts of a connection that all members share. It holds secrets: no error and no log may show them. */
export class Access {
  #passwordFile;

  /**
   * @param {string} url `etcd://HOST:PORT[,HOST:PORT…][/PREFIX]`, or `etcds://…`
   * @param {Credentials} [credentials]
   * @throws {ElectionError} `configuration`
   */
  constructor(url, { tls = {}, user, passwordFile } = {}) {
    const { scheme, hosts, prefix } = parsed(url);
    /** The members, as `HOST:PORT`. */
    this.hosts = hosts;
    /** Without the prefix, for messages. */
    this.url = `${scheme}://${hosts}`;
    /** All keys begin with it: empty, or a text that ends in a slash. */
    this.prefix = Buffer.from(prefix);
    if (scheme === 'etcd' && Object.values(tls ?? {}).some((file) => file !== undefined)) {
      refuse('certificates (`tls`) are of use with TLS only: write etcds:// in place of etcd:// in the URL, or leave them out');
    }
    /** For connections with TLS. @type {Certificates | undefined} */
    this.certificates = scheme === 'etcds' ? certificates(tls ?? {}) : undefined;
    if ((user === undefined) !== (passwordFile === undefined)) {
      refuse('a user goes with a password: give both `user` and `passwordFile`, or neither');
    }
    this.user = user === undefined ? undefined : text('user', user);
    this.#passwordFile = passwordFile === undefined ? '' : text('passwordFile', passwordFile);
  }

  /** The user's password, as the file has it now. */
  async password() {
    const content = await readFile(this.#passwordFile, 'utf8').catch((error) => (
      unreadable('`passwordFile`', this.#passwordFile, error)));
    const [line = ''] = content.split(/\r?\n/, 1);
    if (line === '') {
      refuse(`the \`passwordFile\` ${this.#passwordFile} cannot be used: its first line is empty: write the password there`);
    }
    return line;
  }

  /**
   * A key as etcd has it.
   *
   * @param {Uint8Array} key
   */
  wire(key) {
    return Buffer.concat([this.prefix, key]);
  }

  /**
   * A key of etcd's without the prefix.
   *
   * @param {Buffer} key
   */
  own(key) {
    return key.subarray(this.prefix.length);
  }
}

/** @param {string} url */
function parsed(url) {
  // The part that may hold a password is not repeated.
  const shown = text('url', url).replace(/^(\w+:\/\/)?.*@/s, '$1…@');
  if (shown !== url) {
    refuse(`${shown} holds a user or a password: give them apart from it, by \`user\` and \`passwordFile\``);
  }
  const [, scheme = '', list = '', path = ''] = /^(etcds?):\/\/([^/]*)(?:\/([^\s\p{Cc}?#]*))?$/u.exec(url) ?? [];
  const hosts = list.split(',').map((host) => {
    const [, name, port = PORT] = /^([\w.-]+|\[[\da-f:.]+\])(?::(\d+))?$/i.exec(host) ?? [];
    const isName = name && (name[0] !== '[' || isIPv6(name.slice(1, -1)));
    return isName && Number(port) >= 1 && Number(port) <= 65_535 ? `${name}:${port}` : '';
  });
  if (!hosts.every(Boolean)) {
    refuse(`${shown} names no etcd: write etcd://HOST:PORT[,HOST:PORT…][/PREFIX], or etcds://… for TLS`);
  }
  const prefix = path.replace(/\/+$/, '');
  return { scheme, hosts, prefix: prefix && `${prefix}/` };
}

/**
 * @param {Tls} files
 * @returns {Certificates}
 */
function certificates({ ca, cert, key }) {
  if ((cert === undefined) !== (key === undefined)) {
    refuse('a certificate goes with its key: give both `tls.cert` and `tls.key`, or neither');
  }
  const system = [process.env.SSL_CERT_FILE, ...AUTHORITIES].find((file) => file && existsSync(file));
  if (ca === undefined && !system) {
    refuse('this machine knows no certificate authorities: give the CA that signed etcd\'s certificate as `tls.ca`');
  }
  const made = { ca: pem('CA certificate `tls.ca`', ca ?? system, 'CERTIFICATE') };
  if (cert === undefined) return made;
  const ours = {
    cert: pem('certificate `tls.cert`', cert, 'CERTIFICATE'),
    key: pem('private key `tls.key`', key, 'PRIVATE KEY'),
  };
  try {
    createSecureContext(ours);
  } catch (error) {
    const { message } = /** @type {Error} */ (error);
    refuse(`the certificate \`tls.cert\` ${cert} and the private key \`tls.key\` ${key} cannot be used (${message}): give a certificate and its own key, without a passphrase`);
  }
  return { ...made, ...ours };
}

/**
 * The content of a file that holds at least one object of this kind.
 *
 * @param {string} what
 * @param {unknown} file
 * @param {string} kind
 */
function pem(what, file, kind) {
  const name = text(what, file);
  let content;
  try {
    content = readFileSync(name);
  } catch (error) {
    return unreadable(what, name, error);
  }
  if (!new RegExp(`^-----BEGIN .*${kind}-----\\s*$`, 'm').test(content.toString('latin1'))) {
    refuse(`the ${what} ${name} cannot be used: it holds no ${kind} in PEM form`);
  }
  return content;
}

/**
 * @param {string} what
 * @param {string} file
 * @param {unknown} error
 * @returns {never}
 */
function unreadable(what, file, error) {
  const [why] = /** @type {Error} */ (error).message.split(', ');
  return refuse(`the ${what} ${file} cannot be read: ${why}`);
}

/**
 * @param {string} sentence
 * @returns {never}
 */
function refuse(sentence) {
  throw new ElectionError('configuration', sentence);
}
