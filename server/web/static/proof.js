// The ledger's check in this browser, what it cannot show, and the command that can; the certificate to take away.
import { ask } from "/static/coordinator.js";
import { element, phrase, redraw, save, section } from "/static/elements.js";
import { Broken, checkChain, checkSignature, fingerprint } from "/static/ledger.js";
import { count } from "/static/numbers.js";

const PAGE = 500;
const KINDS = { reserved: "rounds reserved", asked: "questions reserved", settled: "settled by their report", "charged-in-full": "charged in full", cancelled: "cancelled, nothing was seen", roster: "changes of the membership" };

export function proof(name) {
  const command = `wardround ledger verify ${name} --server ${location.origin} --coordinator-key FINGERPRINT`;
  const facts = element("dl", { class: "facts" }), result = element("div", { role: "status" });
  const button = element("button", { type: "button" }, "Check the ledger in this browser");
  const used = resultOf(name);
  let model = null;
  button.addEventListener("click", async () => {
    button.disabled = true;
    result.replaceChildren(element("p", {}, "Checking …"));
    result.replaceChildren(...(await outcome(name, model)));
    button.disabled = false;
  });
  const node = section("proof", "Proof",
    element("p", {}, "Every number above is computed from the study's ledger: a list to which entries are added and never changed, each with the hash of the one before. The coordinator signs its head."),
    facts, button, result,
    element("p", {}, "This page came from the coordinator itself. A malicious coordinator could send a page that always reports success. To check without trusting it, run this on your own machine, with the coordinator's fingerprint from a hospital's ", element("code", {}, "wardround doctor"), ":"),
    element("p", { class: "command" }, element("code", { tabindex: "0" }, command), copyButton(command)),
    ...certificate(name), used.node);
  const update = (now) => {
    model = now;
    used.update(now);
    const { ledger } = model.budget;
    redraw(facts, ledger, () => [element("dt", {}, "Entries"), element("dd", {}, String(ledger.entries)), element("dt", {}, "Head"), element("dd", { class: "long" }, ledger.head)]);
  };
  return { node, update };
}

function certificate(name) {
  const button = element("button", { type: "button" }, "Download the certificate"), said = element("div", { role: "status" });
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      save(`certificate-${name}.json`, await (await ask(`/v1/studies/${name}/certificate`)).blob());
      said.replaceChildren();
    } catch (error) {
      said.replaceChildren(element("p", { class: "notice bad" }, error.message));
    }
    button.disabled = false;
  });
  const about = "The certificate is one signed document for a data-protection officer: what ε means here, every limit, who sees what. `wardround certificate pdf` makes a PDF of it, `wardround certificate verify` checks it.";
  return [element("h3", {}, "Certificate"), element("p", {}, ...phrase(about)), button, said];
}

// What people use: the file whose SHA-256 the certificate names.
function resultOf(name) {
  const button = element("button", { type: "button" }, "Download the result"), said = element("div", { role: "status" });
  const say = (words, kind) => said.replaceChildren(element("p", { class: kind }, words));
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const answer = await ask(`/v1/studies/${name}/models/result`);
      save(`${name}.safetensors`, await answer.blob());
      const digest = answer.headers.get("etag").replace("W/", "").replaceAll('"', ""), named = await namedFile(name);
      say(named?.sha256 === digest ? named.words : `SHA-256 ${digest}. The certificate names another file: a running study's result changes with each round.`, "long");
    } catch (error) {
      say(error.message, "notice bad");
    }
    button.disabled = false;
  });
  const about = "The result is the newest model, or the mean of released models that the settings name. `wardround certificate verify --model` checks the file.";
  const node = element("div", {}, element("h3", {}, "Result"), element("p", {}, ...phrase(about)), button, said);
  let shown = false;
  const update = ({ trains, study }) => {
    node.hidden = !trains;
    // Of a running study each round makes another one: it is shown with its download.
    if (shown || !trains || study.stop_reason === null) return;
    shown = true;
    namedFile(name).then((named) => named && say(named.words, "long"), () => { shown = false; });
  };
  return { node, update };
}

async function namedFile(name) {
  const { certificate } = await (await ask(`/v1/studies/${name}/certificate`)).json();
  const { result, model } = certificate;
  if (result) return { ...result, words: `Made of the models of ${count(result.rounds.length, "round")}, ${result.rounds[0]} to ${result.rounds.at(-1)}. The certificate names its SHA-256: ${result.sha256}` };
  return model && { ...model, words: `Model of round ${model.version}. The certificate names its SHA-256: ${model.sha256}` };
}

function copyButton(text) {
  // Only where a page may write to the clipboard: over https.
  if (!navigator.clipboard) return null;
  const button = element("button", { type: "button", class: "plain" }, "Copy");
  button.addEventListener("click", async () => {
    await navigator.clipboard.writeText(text).then(() => { button.textContent = "Copied"; }, () => { button.textContent = "Copy it by hand"; });
  });
  return button;
}

async function outcome(name, { study, budget }) {
  if (!globalThis.crypto?.subtle) return [element("p", { class: "notice care" }, "This browser checks hashes only on pages that were opened over https. Use the command below.")];
  // Of the numbers that are shown now, whatever is added meanwhile.
  const head = { entries: budget.ledger.entries, sha256: budget.ledger.head.replace("sha256:", "") };
  try {
    const kinds = await checkChain(name, head, pages(name, head.entries));
    const signed = await checkSignature(name, head, budget.ledger.signature, study.coordinator_key);
    const found = Object.entries(KINDS).filter(([kind]) => kinds[kind]).map(([kind, words]) => `${kinds[kind]} ${words}`);
    const signature = signed ? "The head is signed with the key that this coordinator shows." : "This browser cannot check Ed25519 signatures. The command below can.";
    return [
      element("p", { class: "notice good" }, `The chain is whole: ${count(head.entries, "entry", "entries")}, each with its hash. ${signature}`),
      element("p", { class: "note" }, `${found.join("; ")}.`),
      element("p", { class: "note long" }, `Fingerprint of that key, to compare with a hospital's: ${await fingerprint(study.coordinator_key)}`),
    ];
  } catch (error) {
    const words = error instanceof Broken ? `This ledger is broken. ${error.message} Do not rely on the numbers above. Keep what you see and ask a hospital for its own copy (wardround ledger seen).` : error.message;
    return [element("p", { class: "notice bad" }, words)];
  }
}

async function* pages(name, entries) {
  for (let after = 0; after < entries; after += PAGE) {
    yield (await ask(`/dashboard/${name}/ledger.txt?after=${after}&limit=${PAGE}`)).text();
  }
}
