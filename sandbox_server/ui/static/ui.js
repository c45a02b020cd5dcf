// The only script: what a page does by itself. All that it puts into a page was escaped by the server.
"use strict";

// a session that runs: its actions as they come
const live = document.querySelector("[data-live]");
if (live) {
  let last = live.dataset.live;
  const source = new EventSource(last);
  source.addEventListener("action", (event) => {
    if (!live.querySelector(".action")) live.textContent = "";
    // after a break the browser asks from the beginning again
    if (!document.getElementById("a" + event.lastEventId)) live.insertAdjacentHTML("beforeend", event.data);
  });
  source.addEventListener("over", () => {
    source.close();
    location.reload();
  });
}

// the overview: anew while somebody looks at it
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
