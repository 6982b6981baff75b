// Requests to the agent. The session's cookie goes along by itself; the page never sees it.

import type {
  AgentInfo,
  FilePage,
  Job,
  JobAction,
  JobPage,
  JobRequest,
  JobState,
  NewDirectory,
  NewName,
  Place,
  PlaceList,
  PlaceRoot,
  PlaceTest,
  Removal,
  Ticket,
} from './types';

const BASE = '/api/v1';

/** The agent said no, or something else than an answer came. */
export class ApiError extends Error {
  override readonly name = 'ApiError';

  constructor(
    /** The HTTP status; 0 if no answer came. */
    readonly status: number,
    readonly title: string,
    /** What it is this time, in one line; from the agent or the far end, so only ever shown as text. */
    readonly detail: string,
  ) {
    super(detail);
  }
}

interface Call {
  query?: Record<string, string | number | null | undefined>;
  body?: unknown;
  headers?: Record<string, string>;
  signal?: AbortSignal;
}

/** Called when a request is not authenticated (any more). */
let onSignedOut: () => void = () => undefined;

export function whenSignedOut(call: () => void): void {
  onSignedOut = call;
}

async function problemOf(response: Response): Promise<ApiError> {
  let title = response.statusText;
  let detail = `HTTP ${String(response.status)}`;
  try {
    const problem: unknown = await response.json();
    if (typeof problem === 'object' && problem !== null) {
      if ('title' in problem && typeof problem.title === 'string') title = problem.title;
      if ('detail' in problem && typeof problem.detail === 'string') detail = problem.detail;
    }
  } catch {
    // Not a problem document: the status has to do.
  }
  return new ApiError(response.status, title, detail);
}

async function call(method: string, path: string, options: Call = {}): Promise<Response> {
  const url = new URL(BASE + path, window.location.origin);
  for (const [name, value] of Object.entries(options.query ?? {})) {
    if (value !== null && value !== undefined) url.searchParams.set(name, String(value));
  }
  const init: RequestInit = { method, credentials: 'same-origin', headers: { ...options.headers } };
  if (options.body !== undefined) {
    init.body = JSON.stringify(options.body);
    init.headers = { ...options.headers, 'content-type': 'application/json' };
  }
  if (options.signal) init.signal = options.signal;
  let response: Response;
  try {
    response = await fetch(url, init);
  } catch (error) {
    if (error instanceof DOMException && error.name === 'AbortError') throw error;
    throw new ApiError(0, '', '');
  }
  if (!response.ok) {
    if (response.status === 401) onSignedOut();
    throw await problemOf(response);
  }
  return response;
}

async function json<T>(method: string, path: string, options: Call = {}): Promise<T> {
  const response = await call(method, path, options);
  return (await response.json()) as T;
}

/** A repeated request with the same key creates no second job. */
export function randomKey(): string {
  const letters = 'abcdefghijklmnopqrstuvwxyz';
  // 26 letters in 256 values are not quite even, which does not matter for a key that nobody has to guess.
  return Array.from(crypto.getRandomValues(new Uint8Array(24)), (byte) => letters[byte % 26]).join('');
}

export const api = {
  signIn: async (ticket: string): Promise<void> => {
    await call('POST', '/session', { body: { ticket } satisfies Ticket });
  },
  agent: () => json<AgentInfo>('GET', '/agent'),

  jobs: (query: { state?: JobState; part_of?: number; before?: number; limit?: number }) => json<JobPage>('GET', '/jobs', { query }),
  job: (id: number) => json<Job>('GET', `/jobs/${String(id)}`),
  submit: (request: JobRequest, key: string) =>
    json<Job>('POST', '/jobs', { body: request, headers: { 'Idempotency-Key': key } }),
  ask: (id: number, action: JobAction) => json<Job>('POST', `/jobs/${String(id)}/${action}`),
  forget: async (id: number): Promise<void> => {
    await call('DELETE', `/jobs/${String(id)}`);
  },
  report: (id: number) => json<unknown>('GET', `/jobs/${String(id)}/report`),

  places: () => json<PlaceList>('GET', '/places'),
  putPlace: (name: string, root: string) =>
    json<Place>('PUT', `/places/${encodeURIComponent(name)}`, { body: { root } satisfies PlaceRoot }),
  removePlace: async (name: string): Promise<void> => {
    await call('DELETE', `/places/${encodeURIComponent(name)}`);
  },
  testPlace: (name: string) => json<PlaceTest>('POST', `/places/${encodeURIComponent(name)}/test`),

  files: (at: string, after: string | null, limit: number, signal: AbortSignal) =>
    json<FilePage>('GET', '/files', { query: { at, after, limit }, signal }),
  mkdir: async (at: string): Promise<void> => {
    await call('POST', '/files/mkdir', { body: { at } satisfies NewDirectory });
  },
  rename: async (from: string, to: string, overwrite: boolean): Promise<void> => {
    await call('POST', '/files/rename', { body: { from, to, overwrite } satisfies NewName });
  },
  remove: async (at: string, recursive: boolean): Promise<void> => {
    await call('POST', '/files/remove', { body: { at, recursive } satisfies Removal });
  },
};

/** The address of the event stream, from behind a change if one is known. */
export function eventsUrl(after: number | null): string {
  return after === null ? `${BASE}/events` : `${BASE}/events?after=${String(after)}`;
}
