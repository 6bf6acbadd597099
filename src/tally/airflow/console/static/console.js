// What the console's pages do by themselves: they follow Airflow's theme, renew what they show, and
// ask Airflow's own API to start a DAG. Texts are set as text, and HTML comes from the console alone.
"use strict";

const PAUSE_MS = 10_000;
const BUSY_PAUSE_MS = 2_000;

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

function isInUse(part) {
  const selected = document.getSelection();
  return (
    part.contains(document.activeElement) ||
    (selected !== null && !selected.isCollapsed && part.contains(selected.anchorNode))
  );
}

async function fetched(address) {
  const answer = await fetch(address, { headers: { Accept: "text/html" }, redirect: "follow" });
  const html = await answer.text();
  return { isGood: answer.ok, page: new DOMParser().parseFromString(html, "text/html") };
}

function say(text) {
  const place = document.getElementById("refresh");
  if (place !== null && place.textContent !== text) place.textContent = text;
}

async function renew() {
  try {
    const { isGood, page } = await fetched(window.location.href);
    if (!isGood) throw new Error();
    for (const part of document.querySelectorAll("[data-live]")) {
      const now = page.getElementById(part.id);
      if (now !== null && !isInUse(part) && now.outerHTML !== part.outerHTML) {
        const scrolled = [...part.querySelectorAll(".scroll")].map((one) => one.scrollLeft);
        part.replaceWith(document.adoptNode(now));
        now.querySelectorAll(".scroll").forEach((one, n) => (one.scrollLeft = scrolled[n] ?? 0));
        prepare(now);
      }
    }
    say("");
  } catch {
    say("It could not be read again; what is shown is older.");
  }
}

async function fill(part) {
  try {
    const { page } = await fetched(part.dataset.src);
    const fragment = page.querySelector(".fragment") ?? page.querySelector("main");
    if (fragment === null || isInUse(part)) return;
    part.replaceChildren(document.adoptNode(fragment));
  } catch {
    say("Kafka's figures could not be read again; what is shown is older.");
  }
}

async function keepRenewing() {
  const busy = document.querySelector('[data-busy="yes"]') !== null;
  await new Promise((done) => setTimeout(done, busy ? BUSY_PAUSE_MS : PAUSE_MS));
  if (!document.hidden) {
    await renew();
    await Promise.all([...document.querySelectorAll("[data-src]")].map(fill));
  }
  void keepRenewing();
}

// --- the chart

async function showBehind(bar) {
  const place = document.getElementById("behind");
  if (place === null || place.dataset.of === bar.dataset.minute) return;
  place.dataset.of = bar.dataset.minute;
  const { page } = await fetched(bar.dataset.minute);
  const detail = page.getElementById("minute-detail");
  if (detail === null || place.dataset.of !== bar.dataset.minute) return;
  const heading = document.createElement("h3");
  heading.textContent = bar.getAttribute("aria-label");
  place.replaceChildren(heading, document.adoptNode(detail));
}

function moveInChart(event) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  const bar = event.target.closest(".chart a");
  if (step === undefined || bar === null) return;
  const bars = [...bar.closest(".chart").querySelectorAll("a")];
  const next = bars[bars.indexOf(bar) + step];
  if (next === undefined) return;
  event.preventDefault();
  bar.setAttribute("tabindex", "-1");
  next.setAttribute("tabindex", "0");
  next.focus();
}

// --- starting a DAG

function chosenFields(form) {
  const what = form.elements.namedItem("what");
  for (const part of form.querySelectorAll("[data-for]")) {
    part.hidden = what !== null && !part.dataset.for.split(" ").includes(what.value);
  }
}

function confOf(form, button) {
  const conf = JSON.parse(form.dataset.conf ?? "{}");
  for (const field of form.elements) {
    if (field.name === "" || field.tagName === "BUTTON" || field.closest("[hidden]")) continue;
    if (field.type === "radio" && !field.checked) continue;
    const text = field.value.trim();
    if (text !== "") conf[field.name] = field.inputMode === "numeric" ? Number(text) : text;
  }
  if (form.dataset.dryRun !== undefined) conf.dry_run = form.dataset.dryRun === "true";
  if (form.dataset.seen !== undefined) conf.seen = JSON.parse(form.dataset.seen);
  if (button?.name) conf[button.name] = button.value;
  return conf;
}

function whyRefused(code, answer) {
  const detail = answer?.detail;
  const text = typeof detail === "string" ? detail : JSON.stringify(detail ?? "");
  if (code === 401) return "Airflow no longer knows who you are: sign in again.";
  if (code === 403) return "You have no right to start this DAG: ask for it in Airflow.";
  return `Airflow has refused it (${code}): ${text}`;
}

async function trigger(event) {
  const form = event.target.closest("form[data-trigger]");
  if (form === null) return;
  event.preventDefault();
  const said = form.querySelector(".said");
  const buttons = form.querySelectorAll("button");
  const conf = confOf(form, event.submitter);
  const dag = form.dataset.trigger;
  const airflow = document.body.dataset.airflow;
  said.textContent = "";
  buttons.forEach((button) => (button.disabled = true));
  try {
    const answer = await fetch(`${airflow}api/v2/dags/${encodeURIComponent(dag)}/dagRuns`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ logical_date: null, conf }),
    });
    const run = await answer.json().catch(() => null);
    if (!answer.ok) throw new Error(whyRefused(answer.status, run));
    const query = new URLSearchParams({ dag_id: dag, run_id: run.dag_run_id });
    window.location.assign(`${document.body.dataset.root}run?${query}`);
  } catch (error) {
    said.textContent = error instanceof TypeError ? "Airflow did not answer." : error.message;
    buttons.forEach((button) => (button.disabled = false));
  }
}

// --- beginning

function prepare(part) {
  part.querySelectorAll("form[data-trigger]").forEach(chosenFields);
}

followTheme();
document.addEventListener("DOMContentLoaded", () => {
  prepare(document);
  document.addEventListener("click", leaveFrame);
  document.addEventListener("submit", (event) => void trigger(event));
  document.addEventListener("change", (event) => {
    const form = event.target.closest("form[data-trigger]");
    if (form !== null) chosenFields(form);
  });
  document.addEventListener("keydown", moveInChart);
  for (const kind of ["mouseover", "focusin"]) {
    document.addEventListener(kind, (event) => {
      const bar = event.target.closest?.("[data-minute]");
      if (bar) void showBehind(bar);
    });
  }
  document.querySelectorAll("[data-src]").forEach((part) => void fill(part));
  void keepRenewing();
});
