// The OpenAPI document as a page.

const documented = await (await fetch("/api/openapi.json")).json();
const make = (tag, text = "", ...inside) => {
  const made = document.createElement(tag);
  made.textContent = text;
  made.append(...inside);
  return made;
};
const named = (schema) => (schema?.$ref ? documented.components.schemas[schema.$ref.split("/").pop()] : schema);

function kind(schema) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map(kind).join(" or ");
  if (schema.enum) return schema.enum.join(" | ");
  return schema.type === "array" ? `list of ${kind(schema.items ?? {})}` : schema.type ?? "any";
}

function table(title, schema) {
  const fields = Object.entries(named(schema)?.properties ?? {});
  if (!fields.length) return [];
  const rows = fields.map(([name, field]) => {
    const limits = ["minimum", "maximum", "maxLength", "maxItems"].filter((one) => one in field).map((one) => `${one} ${field[one]}`);
    const given = field.default !== undefined && field.default !== null ? [`default ${JSON.stringify(field.default)}`] : [];
    return make("tr", "", make("td", name), make("td", kind(field)), make("td", [field.description, ...limits, ...given].filter(Boolean).join(" · ")));
  });
  return [make("h3", title), make("table", "", ...rows)];
}

document.querySelector("#summary").textContent = documented.info.summary;
for (const [path, methods] of Object.entries(documented.paths)) {
  for (const [method, operation] of Object.entries(methods)) {
    const body = operation.requestBody?.content?.["application/json"]?.schema;
    const answer = operation.responses["200"]?.content?.["application/json"]?.schema;
    const title = make("h2", "", make("b", method.toUpperCase()), path);
    const parts = [...(body ? table("takes", body) : []), ...(answer ? table("answers", answer) : [])];
    document.querySelector("#paths").append(make("article", "", title, make("p", operation.description ?? ""), ...parts));
  }
}
