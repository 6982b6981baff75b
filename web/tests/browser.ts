import { vi } from 'vitest';

/** Minimal browser for the state modules. The tests have no document. */
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
