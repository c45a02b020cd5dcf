// The only script. All content that it inserts into a page was escaped by the server.
"use strict";

// a live session: its actions as they arrive
const live = document.querySelector("[data-live]");
if (live) {
  let last = live.dataset.live;
  const source = new EventSource(last);
  source.addEventListener("action", (event) => {
    if (!live.querySelector(".action")) live.textContent = "";
    // after a break the browser reconnects from the beginning
    if (!document.getElementById("a" + event.lastEventId)) live.insertAdjacentHTML("beforeend", event.data);
  });
  source.addEventListener("over", () => {
    source.close();
    location.reload();
  });
}

// the overview: refreshed while it is visible
const fresh = document.querySelector("[data-refresh]");
if (fresh) {
  setInterval(async () => {
    if (document.hidden || fresh.contains(document.activeElement)) return;
    const answer = await fetch(location.href, { redirect: "error" }).catch(() => null);
    if (!answer || !answer.ok) return;
    const page = new DOMParser().parseFromString(await answer.text(), "text/html");
    const next = page.getElementById("fresh");
    if (next) fresh.replaceChildren(...next.childNodes);
  }, 1000 * Number(fresh.dataset.refresh));
}
