// Opens the page that was asked for, once there is a key or a login.
import { findLogin, knownKey } from "/static/coordinator.js";
import { openStudies } from "/static/overview.js";
import { askForKey, openShell } from "/static/shell.js";
import { openStudy } from "/static/study.js";

const place = document.getElementById("page");
const open = { studies: openStudies, study: openStudy }[place.dataset.page];

async function start(complaint = "") {
  if (!knownKey() && !(await findLogin())) return askForKey(place, complaint, start);
  // Whoever finds that the key or the login opens nothing comes back here.
  open(place, (refused) => askForKey(place, refused, () => start()));
}

// A page that waits for a key must not go on asking with the old one.
openShell((address) => (address ? location.assign(address) : location.reload()));
start();
