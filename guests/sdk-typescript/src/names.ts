/** Names for the objects that a processor creates. */

// As in the Rust SDK: the alphabet of the names that Kubernetes itself generates.
const ALPHABET = "bcdfghjklmnpqrstvwxz2456789";
const SUFFIX = 5;
const LONGEST = 63;

/**
 * Returns a name for an object made on behalf of `name`.
 *
 * It is `<name>-` and 5 characters that depend on all arguments: the same arguments always give the
 * same name, in every SDK. A long `name` is cut so that the whole fits in 63 bytes.
 */
export function derivedName(name: string, ...identity: string[]): string {
  const encoder = new TextEncoder();
  const wrap = (value: bigint) => BigInt.asUintN(64, value);
  let hash = 0xcbf29ce484222325n;
  for (const part of [name, ...identity]) {
    const text = encoder.encode(part);
    const length = [0, 8, 16, 24].map((shift) => (text.length >>> shift) & 0xff);
    for (const byte of [...length, ...text]) {
      hash = wrap((hash ^ BigInt(byte)) * 0x100000001b3n);
    }
  }
  hash = wrap((hash ^ (hash >> 33n)) * 0xff51afd7ed558ccdn);
  hash ^= hash >> 33n;
  let suffix = "";
  for (let place = 0; place < SUFFIX; place += 1) {
    suffix += ALPHABET[Number(hash % 27n)];
    hash /= 27n;
  }
  return `${cut(name, LONGEST - SUFFIX - 1).replace(/[-.]+$/, "")}-${suffix}`;
}

/** Returns as many whole characters of a text as fit into so many bytes. */
function cut(text: string, bytes: number): string {
  const encoder = new TextEncoder();
  let fitting = "";
  let length = 0;
  for (const character of text) {
    length += encoder.encode(character).length;
    if (length > bytes) {
      break;
    }
    fitting += character;
  }
  return fitting;
}
