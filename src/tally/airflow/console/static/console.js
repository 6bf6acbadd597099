// What the console's pages do by themselves: they follow Airflow's theme, renew what they show, and
// ask Airflow's own API to start a DAG. Texts are set as text, and HTML comes from the console alone.
"use strict";

const PAUSE_MS = 10_000;
const BUSY_PAUSE_MS = 2_000;
const SAID_MS = 30_000;
const CONFLICT = 409;
const SIGN_IN = "Airflow no longer knows who you are: sign in again.";

// --- Airflow around the page

function outer() {
  try {
    return window.parent !== window && window.parent.document ? window.parent : null;
  } catch {
    return null; // another origin: the page is by itself
  }
}

function followTheme() {
  const airflow = outer();
  if (airflow === null) return;
  const html = airflow.document.documentElement;
  const copy = () => {
    document.documentElement.dataset.theme = html.classList.contains("dark") ? "dark" : "light";
  };
  copy();
  new MutationObserver(copy).observe(html, { attributes: true, attributeFilter: ["class"] });
}

// A frame may not lead its window elsewhere, but a link in Airflow's own document does.
function leaveFrame(event) {
  const link = event.target.closest('a[target="_top"]');
  const airflow = outer();
  if (link === null || airflow === null || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const there = airflow.document.createElement("a");
  there.href = link.href;
  airflow.document.body.append(there);
  there.click();
  there.remove();
}

// --- renewing

const FIELDS = "input, select, textarea";
const FOCUSABLE = `a, button, summary, [tabindex], ${FIELDS}`;

// A part is left as it is while somebody fills in a field of it or has marked text in it, while a
// button of it waits for an answer, and for a while after it was refused, so that this can be read.
function isInUse(part) {
  const selected = document.getSelection();
  const active = document.activeElement;
  const isTyped = (field) => field.defaultValue !== undefined && field.value !== field.defaultValue;
  return (
    [...part.querySelectorAll("input, textarea")].some(isTyped) ||
    (part.contains(active) && active.matches(FIELDS)) ||
    (selected !== null && !selected.isCollapsed && part.contains(selected.anchorNode)) ||
    part.querySelector("form[data-busy]") !== null ||
    [...part.querySelectorAll("form[data-said-at]")].some(
      (form) => Date.now() - Number(form.dataset.saidAt) < SAID_MS
    )
  );
}

// As each part came from the server: what has been typed or hidden since is no change of it.
const came = new WeakMap();

function remember(root) {
  root.querySelectorAll("[data-live]").forEach((part) => came.set(part, part.outerHTML));
  if (root.matches?.("[data-live]")) came.set(root, root.outerHTML);
}

function replace(part, now) {
  const focus = [...part.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement);
  const scrolled = [...part.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
  const open = [...part.querySelectorAll("details")].map((one) => one.open);
  part.drawn?.destroy();
  part.replaceWith(document.adoptNode(now));
  remember(now);
  now.querySelectorAll(".scroll").forEach((one, n) => (one.scrollLeft = scrolled[n] ?? 0));
  now.querySelectorAll("details").forEach((one, n) => (one.open = open[n] ?? false));
  if (focus >= 0) [...now.querySelectorAll(FOCUSABLE)][focus]?.focus({ preventScroll: true });
  prepare(now);
}

async function fetched(address) {
  const answer = await fetch(address, { headers: { Accept: "text/html" } });
  const html = await answer.text();
  const page = new DOMParser().parseFromString(html, "text/html");
  return { isGood: answer.ok, code: answer.status, page };
}

function say(text) {
  const place = document.getElementById("refresh");
  if (place !== null && place.textContent !== text) place.textContent = text;
}

async function renew() {
  try {
    const { isGood, code, page } = await fetched(window.location.href);
    if (!isGood) {
      say(code === 401 ? SIGN_IN : "It could not be read again; what is shown is older.");
      return;
    }
    let kept = false;
    for (const part of document.querySelectorAll("[data-live]")) {
      const now = page.getElementById(part.id);
      if (!part.isConnected || now === null || now.outerHTML === came.get(part)) continue;
      if (part.id === "read-at" && kept) continue; // the last part: not all is of this time
      if (isInUse(part)) kept = true;
      else replace(part, now);
    }
    say(kept ? "A part that is in use has changed since; it is renewed when you leave it." : "");
  } catch {
    say("Airflow did not answer; what is shown is older.");
  }
}

// What was well when Kafka answered last is not known to be so now; a failure stays one.
function doubt(part) {
  for (const badge of part.querySelectorAll(".badge:not(.fail)")) {
    badge.className = "badge unknown";
    badge.textContent = "unknown";
  }
}

async function fill(part) {
  const asked = part.dataset.src;
  try {
    const { code, page } = await fetched(asked);
    if (part.dataset.src !== asked) return; // something else was asked for since
    // An error of Tally's is a page, too; what else answers has none.
    const fragment = page.querySelector(".fragment") ?? page.querySelector("main");
    if (code === 401) say(SIGN_IN);
    else if (fragment === null) say("Kafka's figures could not be read; what is shown is older.");
    if (fragment === null) return doubt(part);
    if (isInUse(part)) return;
    const focus = [...part.querySelectorAll(FOCUSABLE)].indexOf(document.activeElement);
    // Figures that have their place in another part of the page.
    for (const one of fragment.querySelectorAll("[data-into]")) {
      document.getElementById(one.dataset.into)?.replaceChildren(...one.childNodes);
      one.remove();
    }
    part.replaceChildren(document.adoptNode(fragment));
    if (part.querySelector("tr[data-name]") !== null) showFound();
    if (focus >= 0) [...part.querySelectorAll(FOCUSABLE)][focus]?.focus({ preventScroll: true });
  } catch {
    doubt(part);
    say("Kafka's figures could not be read again; what is shown is older.");
  }
}

async function keepRenewing() {
  const busy = document.querySelector('[data-busy="yes"]') !== null;
  await new Promise((done) => setTimeout(done, busy ? BUSY_PAUSE_MS : PAUSE_MS));
  if (!document.hidden) {
    await renew();
    await Promise.all([...document.querySelectorAll("[data-src]:not(#minute-lines)")].map(fill));
  }
  void keepRenewing();
}

// --- what is behind a minute

async function showBehind(address, title) {
  const place = document.getElementById("behind");
  const heading = document.createElement("h2");
  const link = document.createElement("a");
  link.href = address;
  link.textContent = title;
  heading.append(link);
  place.hidden = false;
  place.replaceChildren(heading);
  try {
    const { page } = await fetched(address);
    const detail = page.getElementById("minute-detail") ?? page.querySelector("main");
    place.replaceChildren(heading, document.adoptNode(detail));
    place.querySelectorAll("[data-src]").forEach((part) => void fill(part));
    place.scrollIntoView({ block: "nearest" });
  } catch {
    place.append("Airflow did not answer.");
  }
}
window.showBehind = showBehind;

// A value of a label: its lines in place of those of the whole minute.
function showLines(event) {
  const link = event.target.closest("[data-behind]");
  const place = document.getElementById("minute-lines");
  if (link === null || place === null || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  place.dataset.src = link.dataset.behind;
  place.replaceChildren("The lines are being read from Kafka…");
  void fill(place);
}

// A name of a pipeline leads to it; on the list of all, what is typed leaves the rows that have it.
function showFound() {
  const name = document.querySelector("form[data-find] input")?.value.trim() ?? "";
  const rows = [...document.querySelectorAll("tr[data-name]")];
  rows.forEach((row) => (row.hidden = !row.dataset.name.includes(name)));
  return { name, rows };
}

function find(event) {
  const form = event.target.closest("form[data-find]");
  if (form === null) return;
  const { name, rows } = showFound();
  const names = [...form.querySelectorAll("option")].map((option) => option.value);
  const shown = rows.filter((row) => !row.hidden).map((row) => row.dataset.name);
  const found = names.includes(name) ? name : shown.length === 1 ? shown[0] : null;
  if (event.type === "submit") event.preventDefault();
  if (found !== null && event.type === "submit") {
    window.location.assign(`${form.dataset.find}${encodeURIComponent(found)}/`);
  }
}

// --- starting a DAG

function chosenFields(form) {
  const what = form.elements.namedItem("what");
  for (const part of form.querySelectorAll("[data-for]")) {
    part.hidden = what !== null && !part.dataset.for.split(" ").includes(what.value);
  }
}

const NUMBER = /^([0-9]{1,15}|[0-9]{1,3}(,[0-9]{3}){1,4})$/;

function confOf(form, button) {
  const conf = JSON.parse(form.dataset.conf ?? "{}");
  for (const field of form.elements) {
    if (field.name === "" || field.tagName === "BUTTON" || field.closest("[hidden]")) continue;
    if (field.type === "radio" && !field.checked) continue;
    const text = field.value.trim();
    // Numbers may be pasted as they are shown here; what is none is refused by Airflow.
    const isNumber = field.inputMode === "numeric" && NUMBER.test(text);
    if (text !== "") conf[field.name] = isNumber ? Number(text.replaceAll(",", "")) : text;
  }
  if (form.dataset.dryRun !== undefined) conf.dry_run = form.dataset.dryRun === "true";
  if (form.dataset.seen !== undefined) conf.seen = JSON.parse(form.dataset.seen);
  if (button?.name) conf[button.name] = button.value;
  return conf;
}

function whyRefused(code, answer) {
  const detail = answer?.detail;
  const text = typeof detail === "string" ? detail : JSON.stringify(detail ?? "");
  if (code === 401) return SIGN_IN;
  if (code === 403) return "You have no right to start this DAG: ask for it in Airflow.";
  return `Airflow has refused it (${code}): ${text}`;
}

// Ask Airflow's API about a DAG, as the user who is signed in.
async function askAirflow(method, dag, path, body) {
  const airflow = document.body.dataset.airflow;
  const answer = await fetch(`${airflow}api/v2/dags/${encodeURIComponent(dag)}${path}`, {
    method,
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(body),
  });
  if (answer.ok) return;
  const told = await answer.json().catch(() => null);
  throw Object.assign(new Error(whyRefused(answer.status, told)), { code: answer.status });
}

// The run's id is made here: when an answer is lost and the button is pressed again, Airflow knows
// the run, and starts no second one. What is asked for otherwise is another run.
function runIdOf(form, conf) {
  const asked = JSON.stringify(conf);
  if (form.dataset.asked !== asked) {
    form.dataset.asked = asked;
    const unique = Math.random().toString(36).slice(2, 10);
    form.dataset.runId = `tally__${new Date().toISOString()}__${unique}`;
  }
  return form.dataset.runId;
}

async function trigger(form, button) {
  const dag = form.dataset.trigger;
  const conf = confOf(form, button);
  const dag_run_id = runIdOf(form, conf);
  try {
    await askAirflow("POST", dag, "/dagRuns", { logical_date: null, dag_run_id, conf });
  } catch (error) {
    if (error.code !== CONFLICT) throw error;
  }
  const query = new URLSearchParams({ dag_id: dag, run_id: dag_run_id });
  window.location.assign(`${document.body.dataset.root}run?${query}`);
}

async function unpause(form) {
  await askAirflow("PATCH", form.dataset.unpause, "", { is_paused: false });
  delete form.dataset.busy; // its part of the page is renewed, too
  await renew();
}

async function steer(event) {
  const form = event.target.closest("form[data-trigger], form[data-unpause]");
  if (form === null) return;
  event.preventDefault();
  const said = form.querySelector(".said");
  const buttons = form.querySelectorAll("button");
  said.textContent = "";
  form.dataset.busy = "yes";
  buttons.forEach((button) => (button.disabled = true));
  try {
    await (form.dataset.unpause ? unpause(form) : trigger(form, event.submitter));
  } catch (error) {
    said.textContent = error instanceof TypeError ? "Airflow did not answer." : error.message;
    form.dataset.saidAt = Date.now();
    delete form.dataset.busy;
    buttons.forEach((button) => (button.disabled = false));
  }
}

// Enter in a field would press the first of several buttons, whichever that is.
function pressNoneOfSeveral(event) {
  const form = event.target.closest("form[data-trigger]");
  if (event.key !== "Enter" || form === null || !event.target.matches("input")) return;
  if (form.querySelectorAll("button").length > 1) event.preventDefault();
}

// --- beginning

function prepare(part) {
  part.querySelectorAll("form[data-trigger]").forEach(chosenFields);
  void window.drawCharts?.(part);
}

followTheme();
document.addEventListener("DOMContentLoaded", () => {
  remember(document);
  prepare(document);
  document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
  document.querySelector("[autofocus]")?.focus(); // browsers leave it out in a frame
  document.addEventListener("click", leaveFrame);
  document.addEventListener("click", showLines);
  document.addEventListener("submit", (event) => void steer(event));
  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-trigger]");
    if (form !== null) chosenFields(form);
  });
  document.addEventListener("keydown", pressNoneOfSeveral);
  document.addEventListener("input", find);
  document.addEventListener("submit", find);
  document.querySelectorAll("[data-src]").forEach((part) => void fill(part));
  void keepRenewing();
});
