// What every page has around it: the bar with its state and its choices, and the form that asks for a key.
import { forgetKey, forgetLogin, keepKey, loggedIn, loginPage, logOut } from "/static/coordinator.js";
import { element } from "/static/elements.js";
import { themeSwitch } from "/static/theme.js";

const LIVE = {
  live: ["live", "Live", "News arrives as it happens."],
  polling: ["calm", "Every 3 seconds", "This network delays events, so the page asks repeatedly."],
  hidden: ["calm", "Resting", "The page asks again when you look at it."],
  asking: ["calm", "Up to date", "The page asks every 3 seconds."],
  trouble: ["care", "No answer", "The coordinator does not answer. The page keeps asking."],
};

const status = element("span", { class: "status", role: "status" });
const who = element("span", { class: "who" });
const lock = element("button", { type: "button", class: "plain", hidden: true }, "Forget the key");

export function openShell(onForget) {
  lock.addEventListener("click", async () => {
    try {
      const address = loggedIn() ? await logOut() : null;
      forgetKey();
      onForget(address);
    } catch (error) {
      complain(error.message);
    }
  });
  document.getElementById("bar").append(
    element("a", { class: "brand", href: "/dashboard" }, element("img", { src: "/static/icon.svg", alt: "", width: "24", height: "24" }), "Wardround"),
    status, themeSwitch(), who, lock,
  );
}

export function tell(state) {
  // What went wrong stands until an answer takes it away.
  const [tone, name, sentence] = LIVE[document.getElementById("complaint").textContent ? "trouble" : state];
  lock.hidden = false;
  const person = loggedIn();
  lock.textContent = person ? "Log out" : "Forget the key";
  who.textContent = person?.name ?? "";
  who.title = person ? person.grants.map(({ role, study }) => `${role} of ${study ?? "all studies"}`).join(", ") : "";
  if (status.textContent === name) return;
  status.className = `status ${tone}`;
  status.title = sentence;
  status.textContent = name;
}

// What went wrong, above what is shown; an empty text takes it away.
export function complain(text) {
  const place = document.getElementById("complaint");
  if (place.textContent !== text) place.textContent = text;
  if (text) tell("trouble");
}

export function title(text) {
  document.title = text ? `${text} · Wardround` : "Wardround";
}

export function askForKey(place, complaint, goOn) {
  forgetKey();
  forgetLogin();
  title("Your key");
  lock.hidden = true;
  who.textContent = "";
  status.textContent = "";
  complain("");
  const input = element("input", { id: "key", type: "password", autocomplete: "off", required: true, spellcheck: "false", "aria-describedby": "key-help" });
  const submit = (event) => {
    event.preventDefault();
    keepKey(input.value.trim());
    goOn();
  };
  place.replaceChildren(
    element("section", { class: "gate", "aria-labelledby": "gate-title" },
      element("h1", { id: "gate-title" }, "Studies and their privacy budgets"),
      element("p", {}, "Enter your key to see them. A viewer's key is enough: it reads and changes nothing."),
      element("p", { class: "wrong", role: "alert" }, complaint),
      ...login(),
      element("form", { onsubmit: submit }, element("label", { for: "key" }, "Viewer's key"), element("div", { class: "row" }, input, element("button", {}, "Show"))),
      element("p", { id: "key-help", class: "note" }, "It begins with wrk_. An administrator or the study's lead makes one with ", element("code", {}, "wardround key create --role viewer"), ". It stays in this tab and is gone when you close it."),
    ),
  );
  input.focus();
}

// The way to a login, where the coordinator has an identity provider. It leads back to this page.
function login() {
  const page = loginPage();
  if (!page) return [];
  const address = `${page}?${new URLSearchParams({ to: location.pathname })}`;
  return [element("p", {}, element("a", { id: "login", href: address }, "Log in at your organisation"), ", or enter a key:")];
}
