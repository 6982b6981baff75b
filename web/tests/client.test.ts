import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { ApiError, api, eventsUrl, randomKey, whenSignedOut } from '../src/api/client';
import { stubBrowser } from './browser';

/** Returns the URL of the last request. */
function asked(): string {
  const url = vi.mocked(fetch).mock.lastCall?.[0];
  return url instanceof URL ? url.href : '';
}

function answer(status: number, body: unknown): void {
  vi.stubGlobal(
    'fetch',
    vi.fn(() => Promise.resolve(new Response(status === 204 ? null : JSON.stringify(body), { status }))),
  );
}

beforeEach(stubBrowser);
afterEach(() => { vi.unstubAllGlobals(); });

async function failure(call: Promise<unknown>): Promise<ApiError> {
  try {
    await call;
  } catch (error) {
    if (error instanceof ApiError) return error;
  }
  throw new Error('no ApiError');
}

describe('requests', () => {
  test('say what a problem document says', async () => {
    answer(404, { title: 'Not found', detail: 'there is no job 3', status: 404 });
    expect(await failure(api.job(3))).toMatchObject({ status: 404, title: 'Not found', detail: 'there is no job 3' });
  });

  test('do without one', async () => {
    vi.stubGlobal('fetch', () => Promise.resolve(new Response('<html>', { status: 502 })));
    expect(await failure(api.agent())).toMatchObject({ status: 502, detail: 'HTTP 502' });
    vi.stubGlobal('fetch', () => Promise.reject(new TypeError('no')));
    expect(await failure(api.agent())).toMatchObject({ status: 0 });
  });

  test('tell when the session has ended', async () => {
    const out = vi.fn();
    whenSignedOut(out);
    answer(401, {});
    await failure(api.agent());
    expect(out).toHaveBeenCalledOnce();
  });

  test('carry names as they are', async () => {
    answer(204, null);
    await api.removePlace('a/b ü');
    expect(asked()).toBe('http://127.0.0.1:7512/api/v1/places/a%2Fb%20%C3%BC');
    answer(200, { entries: [], next: null });
    await api.files('ana@dtn:a&b', 'x?', 1000, new AbortController().signal);
    expect(asked()).toBe(
      'http://127.0.0.1:7512/api/v1/files?at=ana%40dtn%3Aa%26b&after=x%3F&limit=1000',
    );
  });

  test('have keys of letters', () => {
    expect(randomKey()).toMatch(/^[a-z]{24}$/);
    expect(randomKey()).not.toBe(randomKey());
    expect(eventsUrl(null)).toBe('/api/v1/events');
    expect(eventsUrl(7)).toBe('/api/v1/events?after=7');
  });
});
