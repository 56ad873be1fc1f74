// Checks a study's ledger with the browser's own cryptography: each entry's hash, the chain, the signature on its head.
const encoder = new TextEncoder();
const GENESIS = "0".repeat(64);
const HEAD_LABEL = "wardround/1/ledger-head";
const ANSWER_LABEL = "wardround/1/query-answer";
const KEY_LABEL = "wardround/1/key";

export class Broken extends Error {}

const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
const fromBase64url = (text) => Uint8Array.from(atob(text.replaceAll("-", "+").replaceAll("_", "/")), (sign) => sign.charCodeAt(0));
const sha256 = async (bytes) => new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));

// study    its name: the first entry must be of it, and the signature covers it
// head     {entries, sha256}
// pages    async iterator of texts, one entry a line
// Returns how many entries of each kind there are. Throws Broken, which names the first entry that does not fit.
export async function checkChain(study, head, pages) {
  const kinds = {};
  let sequence = 0, before = GENESIS;
  for await (const text of pages) {
    for (const line of text.split("\n")) {
      if (line === "" || sequence === head.entries) continue;
      sequence += 1;
      const entry = read(line, sequence);
      if (entry.sequence !== sequence) throw new Broken(`Entry ${sequence} is missing: the next one is ${entry.sequence}.`);
      if (entry.previous !== before) throw new Broken(`Entry ${sequence} does not hang on the entry before it: the past was rewritten.`);
      if (sequence === 1 && entry.body?.study !== study) throw new Broken("Entry 1 opens another study.");
      before = hex(await sha256(encoder.encode(line)));
      kinds[entry.kind] = (kinds[entry.kind] ?? 0) + 1;
    }
  }
  if (sequence !== head.entries) throw new Broken(`The ledger has ${sequence} entries, the signed head says ${head.entries}.`);
  if (before !== head.sha256) throw new Broken("The last entry does not have the hash that the signed head names.");
  return kinds;
}

function read(line, sequence) {
  try {
    return JSON.parse(line);
  } catch {
    throw new Broken(`Entry ${sequence} cannot be read.`);
  }
}

// True, or null where this browser has no Ed25519. Throws Broken where the signature is wrong.
export async function checkSignature(study, head, signature, key) {
  // Keys in the order of their names, as canonical JSON has them; a study's name needs no escapes.
  const document = JSON.stringify({ entries: head.entries, sha256: head.sha256, study });
  return check(HEAD_LABEL, document, signature, key, "The signature on the head is not the coordinator's.");
}

// text: the canonical JSON of a published answer. As above.
export const checkAnswer = (text, signature, key) => check(ANSWER_LABEL, text, signature, key, "The signature on this answer is not the coordinator's.");

async function check(name, text, signature, key, wrong) {
  let known;
  try {
    known = await crypto.subtle.importKey("raw", fromBase64url(key), { name: "Ed25519" }, false, ["verify"]);
  } catch (error) {
    if (error.name === "NotSupportedError") return null;
    throw new Broken("The coordinator's key is no Ed25519 key.");
  }
  const digest = await sha256(encoder.encode(text));
  const label = encoder.encode(name);
  const message = new Uint8Array([0, 0, 0, label.length, ...label, ...digest]);
  if (!(await crypto.subtle.verify({ name: "Ed25519" }, known, fromBase64url(signature), message))) {
    throw new Broken(wrong);
  }
  return true;
}

// What people read to each other on the telephone.
export const fingerprint = async (key) => hex(await sha256(new Uint8Array([...encoder.encode(KEY_LABEL), ...fromBase64url(key)])));
