// Requests to the server; every failure is thrown as a sentence, and an empty answer is null.

export class Failure extends Error {
  constructor(failure) {
    super(failure.message);
    this.kind = failure.kind;
    this.fields = failure.fields ?? [];
  }
}

async function read(response) {
  if (response.status === 204) return null;
  let body = null;
  try { body = await response.json(); } catch { /* not JSON: told below */ }
  if (response.ok && body !== null) return body;
  throw new Failure(body?.error ?? { kind: "internal", message: `The server answered ${response.status}.` });
}

async function ask(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure({ kind: "internal", message: "The server does not answer. Is dln lab still running?" });
  }
  return read(response);
}

export const get = (path, signal) => ask(path, { signal });

export const post = (path, body, signal) =>
  ask(path, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body), signal });

export const remove = (path) => ask(path, { method: "DELETE" });

// Follow a simulation. `on` has progress, partial, done, failed, cancelled. Returns a function that stops listening.
export function follow(id, on) {
  const source = new EventSource(`/api/runs/${id}/events`);
  let misses = 0;
  for (const name of ["progress", "partial", "done", "failed", "cancelled"]) {
    source.addEventListener(name, (event) => {
      misses = 0;
      if (!["progress", "partial"].includes(name)) source.close();
      on[name]?.(JSON.parse(event.data));
    });
  }
  source.onerror = () => {
    misses += 1;
    if (source.readyState === EventSource.CLOSED || misses > 3) {
      source.close();
      on.failed?.({ kind: "internal", message: "The connection to the server was lost. Start the simulation again." });
    }
  };
  return () => source.close();
}
