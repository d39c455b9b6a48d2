"use strict";
(async () => {
  const routes = document.getElementById("routes");
  const element = (name, text, className) => {
    const e = document.createElement(name);
    if (text !== undefined) e.textContent = text;
    if (className) e.className = className;
    return e;
  };
  const api = await (await fetch("openapi.json")).json();
  document.title = api.info.title;
  document.getElementById("title").textContent = `${api.info.title} ${api.info.version}`;

  // example makes a sketch of a value of the schema.
  const example = (schema, depth = 0) => {
    if (!schema || depth > 6) return null;
    if (schema.$ref) return example(api.components.schemas[schema.$ref.split("/").pop()], depth + 1);
    if (schema.enum) return schema.enum.join(" | ");
    const type = [].concat(schema.type || "any")[0];
    if (type === "array") return [example(schema.items, depth + 1)];
    if (type !== "object") return schema.format || type;
    if (schema.properties) {
      return Object.fromEntries(Object.entries(schema.properties).map(([k, v]) => [k, example(v, depth + 1)]));
    }
    const values = schema.additionalProperties;
    return values && typeof values === "object" ? { "…": example(values, depth + 1) } : {};
  };
  const sketch = (parent, title, content) => {
    for (const [media, body] of Object.entries(content || {})) {
      parent.append(element("h4", `${title} (${media})`), element("pre", JSON.stringify(example(body.schema), null, 2)));
    }
  };
  const route = (path, method, op) => {
    const d = element("details");
    const s = element("summary");
    s.append(element("code", method.toUpperCase(), "method"), element("code", path), element("span", op.summary, "about"));
    d.append(s);
    if (op.parameters) {
      const list = element("ul");
      for (const p of op.parameters) {
        const item = element("li");
        item.append(element("code", p.name), document.createTextNode(` in ${p.in}${p.required ? ", required" : ""}. ${p.description || ""}`));
        list.append(item);
      }
      d.append(list);
    }
    sketch(d, "Body", op.requestBody && op.requestBody.content);
    for (const [status, r] of Object.entries(op.responses || {})) sketch(d, `Answer ${status}`, r.content);
    return d;
  };
  const sections = new Map();
  for (const [path, item] of Object.entries(api.paths)) {
    for (const method of ["get", "post", "put", "patch", "delete"]) {
      const op = item[method];
      if (!op) continue;
      const tag = (op.tags || ["other"])[0];
      if (!sections.has(tag)) {
        const section = element("section");
        section.append(element("h2", tag));
        sections.set(tag, section);
        routes.append(section);
      }
      sections.get(tag).append(route(path, method, op));
    }
  }
})().catch((error) => {
  document.getElementById("routes").textContent = `The document cannot be shown: ${error}`;
});
