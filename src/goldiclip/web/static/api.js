// The HTTP API, as calls. A refusal becomes an Error that says what the server said.

async function refused(answer) {
  let detail = `${answer.status} ${answer.statusText}`;
  try {
    detail = (await answer.json()).detail;
  } catch { /* no JSON: the status says it */ }
  return new Error(detail);
}

async function reached(path, options) {
  try {
    return await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Error("the server cannot be reached");
  }
}

export async function post(path, body, signal) {
  const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal };
  const answer = await reached(`/api/${path}`, options);
  if (!answer.ok) throw await refused(answer);
  return answer.json();
}

export async function about() {
  return (await reached("/api/about")).json();
}

export async function upload(file) {
  const answer = await reached("/api/uploads", { method: "POST", headers: { "content-type": file.type }, body: file });
  if (!answer.ok) throw await refused(answer);
  return answer.json();
}

// Lines of JSON as they come.
export async function* lines(path, body, signal) {
  const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal };
  const answer = await reached(`/api/${path}`, options);
  if (!answer.ok) throw await refused(answer);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n");
    rest = parts.pop();
    for (const part of parts) yield JSON.parse(part);
  }
}

export const imageURL = (id, side) => `/api/images/${id.split("/").map(encodeURIComponent).join("/")}?side=${side}`;
