// Asks the coordinator, with the reader's key or login. The key stays in this tab: in its session storage, never in an
// address. A login stands in a cookie that no script can read.
const KEY = "wardround-key";
// So often it is asked again what the coordinator had no room for, each time as late as it says.
const ATTEMPTS = 4;
const MOST_SECONDS = 30;

export const knownKey = () => sessionStorage.getItem(KEY);
export const keepKey = (key) => sessionStorage.setItem(KEY, key);
export const forgetKey = () => sessionStorage.removeItem(KEY);
// The page for logins, where the coordinator has one.
export const loginPage = () => document.documentElement.dataset.login;

let person = null;
// Who is logged in, as the coordinator says. Null: nobody, or somebody with a key.
export const loggedIn = () => person;

// Looks whether somebody is logged in, and goes on without when the coordinator does not say.
export async function findLogin() {
  if (!loginPage() || knownKey()) return null;
  try {
    person = await (await ask("/v1/person")).json();
  } catch {
    person = null;
  }
  return person;
}

export function forgetLogin() {
  person = null;
}

// Ends the login here and, where there is a page for it, at the identity provider.
export async function logOut() {
  const headers = { "X-CSRF-Token": person.csrf_token };
  const answer = await fetch("/v1/session", { method: "DELETE", headers, cache: "no-store" });
  if (!answer.ok) throw await refusal(answer);
  return (await answer.json()).logout_address ?? "/dashboard";
}

// `wrongKey`: the answer says that this key opens nothing here. The message is for people.
export class Refused extends Error {
  constructor(message, { wrongKey = false, unknown = false, title = "" } = {}) {
    super(message);
    Object.assign(this, { wrongKey, unknown, title });
  }
}

export async function ask(path, headers = {}, signal = undefined) {
  for (let attempt = 1; ; attempt += 1) {
    const answer = await send(path, headers, signal);
    if (answer.ok || answer.status === 304) return answer;
    // One person may have several tabs, and all of them may ask at once.
    if (answer.status !== 429 || attempt === ATTEMPTS) throw await refusal(answer);
    const seconds = Math.min(Number(answer.headers.get("Retry-After")) || 1, MOST_SECONDS);
    await new Promise((resolve) => setTimeout(resolve, 1000 * (seconds + Math.random())));
  }
}

async function send(path, headers, signal) {
  try {
    const key = knownKey();
    const known = key ? { Authorization: `Bearer ${key}` } : {};
    return await fetch(path, { headers: { ...headers, ...known }, cache: "no-store", signal });
  } catch (error) {
    if (signal?.aborted) throw error;
    throw new Refused("The coordinator does not answer. The numbers below are the last ones that it gave.");
  }
}

async function refusal(answer) {
  const problem = await answer.json().catch(() => ({}));
  const wrongKey = answer.status === 401 || answer.status === 403;
  const words = problem.detail ?? `The coordinator answered ${answer.status}. Try again in a minute.`;
  return new Refused(words, { wrongKey, unknown: answer.status === 404, title: problem.title ?? "" });
}

// One twin of a page: asked again, it brings the same object as null, because the coordinator says that nothing is new.
export class Twin {
  #tag = new Map();

  async read(path) {
    const known = this.#tag.get(path);
    const answer = await ask(path, known ? { "If-None-Match": known } : {});
    if (answer.status === 304) return null;
    // Only the newest: the address changes with what is known already.
    this.#tag = new Map([[path, answer.headers.get("ETag")]]);
    return answer.json();
  }
}

// Server-sent events, read by fetch because EventSource cannot send a key. Yields lists, empty ones as signs of life.
export async function* events(path, signal) {
  const answer = await ask(path, { Accept: "text/event-stream" }, signal);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  // It is open: what happens from now on will be told.
  yield [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (text + value).split("\n\n");
    text = parts.pop();
    yield parts.flatMap((part) => part.split("\n")).filter((line) => line.startsWith("data: ")).map((line) => JSON.parse(line.slice(6)));
  }
}
