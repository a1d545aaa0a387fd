// Sortable and filterable tables (DataTables from itables), figures (Vega), and the origin of numbers in a dialog.
const bundle = new Blob([document.getElementById("datatables").textContent], { type: "text/javascript" });
const { default: DataTable } = await import(URL.createObjectURL(bundle));

const fits = [];
for (const table of document.querySelectorAll("section.table table")) {
  const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  const groups = table.tHead.rows.length > 1 ? [...table.tHead.rows[0].cells].flatMap((g) => Array(g.colSpan).fill(g.textContent)) : [];
  const names = heads.map((head, i) => `${groups[i] ?? ""} ${head.textContent}`.trim());
  const ranked = heads.map((head, i) => i).filter((i) => heads[i].dataset.rank).sort((a, b) => heads[a].dataset.rank - heads[b].dataset.rank);
  const sorts = table.classList.contains("sorts");
  const api = new DataTable(table, {
    paging: false, info: false, order: [], autoWidth: false, orderMulti: false, ordering: sorts,
    titleRow: table.tHead.rows.length - 1,
    layout: { topStart: null, topEnd: sorts && table.tBodies[0].rows.length > 8 ? "search" : null, bottomStart: null, bottomEnd: null },
    language: { search: "", searchPlaceholder: "Filter" },
    columnDefs: [{ targets: "_all", orderSequence: ["asc", "desc"] }, { targets: "detail", visible: false }],
  });
  const hidden = () => heads.flatMap((_, i) => (api.column(i).visible() ? [] : [i]));
  for (const head of table.querySelectorAll("tbody th")) {
    const more = document.createElement("button");
    Object.assign(more, { type: "button", className: "more", textContent: "+", ariaExpanded: "false" });
    more.setAttribute("aria-label", `all of ${head.textContent}`);
    more.addEventListener("click", () => {
      const row = api.row(head.parentElement);
      const open = row.child.isShown();
      if (open) row.child.hide();
      else row.child(detailsOf(api, row, hidden(), names)).show();
      more.textContent = open ? "+" : "−";
      more.ariaExpanded = String(!open);
    });
    head.prepend(more);
  }
  const [box, all] = [table.closest(".scroll"), document.createElement("button")];
  Object.assign(all, { type: "button", className: "columns", ariaExpanded: "false" });
  all.addEventListener("click", () => {
    all.ariaExpanded = String(all.ariaExpanded === "false");
    fit();
  });
  box.after(all);
  // the leading columns, without the least important ones if there is no room for them
  function fit() {
    const opened = all.ariaExpanded === "true";
    heads.forEach((_, i) => api.column(i).visible(opened || ranked.includes(i)));
    table.classList.toggle("partial", hidden().length > 0);
    for (let n = ranked.length; !opened && n > 2 && box.scrollWidth > box.clientWidth; n--) {
      api.column(ranked[n - 1]).visible(false);
      table.classList.add("partial");
    }
    all.hidden = !opened && !hidden().length;
    all.textContent = opened ? "Fewer columns" : `All ${heads.length} columns`;
  }
  fits.push(fit);
  table.closest("details")?.addEventListener("toggle", fit);
}
if (innerWidth < 640) document.querySelector("nav details").open = false;
const fitAll = () => fits.forEach((fit) => fit());
fitAll();
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== width) fitAll();
  width = innerWidth;
});

function detailsOf(api, row, columns, names) {
  const list = document.createElement("dl");
  for (const column of columns) {
    const cell = api.cell(row.index(), column).node();
    if (!cell.textContent.trim()) continue;
    const [term, value] = [document.createElement("dt"), document.createElement("dd")];
    term.textContent = names[column];
    value.append(...[...cell.childNodes].map((node) => node.cloneNode(true)));
    list.append(term, value);
  }
  return list;
}

// The origin of a number: the entries of its cells, shown in a dialog next to it.
const dialog = document.querySelector("dialog");
const inside = dialog.querySelector("div");
function show(ids) {
  inside.replaceChildren(...ids.map((id) => {
    const entry = document.getElementById(id).cloneNode(true);
    entry.removeAttribute("id");
    entry.open = id === ids[0];
    return entry;
  }));
  if (!dialog.open) dialog.showModal();
}
document.addEventListener("click", async (event) => {
  const link = event.target.closest("a[data-cells]");
  if (link) {
    event.preventDefault();
    show(link.dataset.cells.split(" ").filter((id) => document.getElementById(id)));
  } else if (event.target === dialog) {
    dialog.close();
  } else if (event.target.matches("button.copy")) {
    await copy(event.target.parentElement.querySelector(".command"));
    event.target.textContent = "Copied";
  }
});
async function copy(element) {
  try {
    await navigator.clipboard.writeText(element.textContent);
  } catch {
    getSelection().selectAllChildren(element);
    document.execCommand("copy");
  }
}
function openTarget() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target?.matches("details.cell")) target.open = true;
}
addEventListener("hashchange", openTarget);
openTarget();

// Figures are drawn when they scroll near the viewport.
const figures = new IntersectionObserver((entries) => {
  for (const { isIntersecting, target } of entries) {
    if (!isIntersecting) continue;
    figures.unobserve(target);
    draw(target);
  }
}, { rootMargin: "600px" });
async function draw(figure) {
  const spec = JSON.parse(figure.querySelector("script").textContent);
  await vegaEmbed(figure.querySelector(".chart"), spec, { actions: false, renderer: "svg" });
  figure.querySelector(".data").addEventListener("click", () => download(figure, spec));
}
function download(figure, spec) {
  const text = [...Object.values(spec.datasets ?? {}), ...inline(spec)].filter((rows) => rows.length).map((rows) => {
    if (typeof rows === "string") return rows.trimEnd();
    const names = [...new Set(rows.flatMap(Object.keys))];
    return [names, ...rows.map((row) => names.map((name) => row[name]))].map((line) => line.map(quoted).join(",")).join("\n");
  }).join("\n\n");
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  link.download = `${figure.dataset.name}.csv`;
  link.click();
}
function* inline(part) {
  if (typeof part.data?.values === "string") yield part.data.values;
  for (const inner of Object.values(part)) if (inner && typeof inner === "object") yield* inline(inner);
}
function quoted(value) {
  if (typeof value !== "string") return value ?? "";
  // as in retable.core.escaping: escape texts that a spreadsheet would take for formulas
  const text = value === "" || isNaN(value) ? value.replace(/^(?=[=+\-@＝＋－＠\t\r\n])|(?<=[;\t\r\n])(?=[=+\-@＝＋－＠])/g, "'") : value;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}
document.querySelectorAll("figure").forEach((figure) => figures.observe(figure));
document.documentElement.dataset.ready = "";
