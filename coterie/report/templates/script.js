"use strict";
// The page is complete without this: it only adds sorting, values under the pointer, and a switch of colours.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const value = (row, k) => {
    const cell = row.cells[k], given = cell.dataset.value ?? cell.textContent.trim();
    return given !== "" && !Number.isNaN(Number(given)) ? Number(given) : given === "inf" ? Infinity : given.toLowerCase();
  };
  heads.forEach((head, k) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      const rows = [...table.tBodies[0].rows].sort((a, b) => {
        const x = value(a, k), y = value(b, k);
        const order = typeof x === typeof y ? (x < y ? -1 : x > y ? 1 : 0) : typeof x === "number" ? -1 : 1;
        return up ? order : -order;
      });
      table.tBodies[0].append(...rows);
    });
  });
}
for (const svg of document.querySelectorAll("svg[data-readout]")) {
  const points = JSON.parse(svg.dataset.readout), box = svg.viewBox.baseVal;
  if (!points.length) continue;
  const line = document.createElementNS(svg.namespaceURI, "line"), tip = document.createElement("div");
  line.setAttribute("class", "cursor");
  line.setAttribute("y1", svg.dataset.top);
  line.setAttribute("y2", svg.dataset.bottom);
  tip.className = "tip";
  const hide = () => { line.remove(); tip.remove(); };
  svg.addEventListener("pointermove", (event) => {
    const frame = svg.getBoundingClientRect(), x = (event.clientX - frame.left) / frame.width * box.width;
    const [at, text] = points.reduce((a, b) => (Math.abs(b[0] - x) < Math.abs(a[0] - x) ? b : a));
    line.setAttribute("x1", at);
    line.setAttribute("x2", at);
    tip.textContent = text;
    const share = at / box.width;
    tip.style.left = share < 0.5 ? `${100 * share + 2}%` : "auto";
    tip.style.right = share < 0.5 ? "auto" : `${100 - 100 * share + 2}%`;
    svg.append(line);
    svg.parentNode.append(tip);
  });
  svg.addEventListener("pointerleave", hide);
}
{
  const root = document.documentElement, button = document.createElement("button");
  const dark = () => root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const name = () => { button.textContent = dark() ? "light colours" : "dark colours"; };
  button.type = "button";
  button.className = "theme";
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; name(); });
  name();
  document.querySelector("header").prepend(button);
}
