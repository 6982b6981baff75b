import { vi } from 'vitest';

/** As much of a browser as the state needs; the tests have no document. */
export function stubBrowser(): void {
  vi.stubGlobal('document', { documentElement: { dataset: {}, lang: '' } });
  vi.stubGlobal('navigator', { languages: ['en-GB'], language: 'en-GB' });
  vi.stubGlobal('localStorage', { getItem: () => null, setItem: () => undefined });
  vi.stubGlobal('window', {
    location: { origin: 'http://127.0.0.1:7512', hash: '' },
    setTimeout: (call: () => void, delay: number) => setTimeout(call, delay),
    clearTimeout: (timer: ReturnType<typeof setTimeout>) => { clearTimeout(timer); },
    addEventListener: () => undefined,
  });
}
