// The part of a copy's report that the page shows. The JSON comes from another program, so every
// field is checked.

export interface Failure {
  path: string;
  kind: string;
  message: string;
}

export interface RouteShare {
  route: string;
  streams: number;
  bytes: number;
  bps: number;
}

export interface Report {
  explanation: string | null;
  error: string | null;
  bytes: number | null;
  files: number | null;
  seconds: number | null;
  goodputBps: number | null;
  resumedBytes: number;
  unchangedFiles: number;
  encrypted: boolean | null;
  verified: boolean;
  hash: string | null;
  routes: RouteShare[];
  failures: Failure[];
  /** Number of failures; `failures` has the first thousand. */
  failed: number;
}

type Fields = Record<string, unknown>;

const fields = (value: unknown): Fields => (typeof value === 'object' && value !== null ? (value as Fields) : {});
const list = (value: unknown): unknown[] => (Array.isArray(value) ? value : []);
const text = (value: unknown): string | null => (typeof value === 'string' && value !== '' ? value : null);
const number = (value: unknown): number | null =>
  typeof value === 'number' && Number.isFinite(value) ? value : null;

function count(value: unknown): number {
  if (typeof value === 'number') return value;
  return list(value).length;
}

export function readReport(value: unknown): Report {
  const report = fields(value);
  const verification = fields(report['verification']);
  const failures = list(report['failures']).map((item): Failure => {
    const failure = fields(item);
    return {
      path: text(failure['path']) ?? '',
      kind: text(failure['kind']) ?? '',
      message: text(failure['message']) ?? '',
    };
  });
  return {
    explanation: text(report['explanation']),
    error: text(report['error']),
    bytes: number(report['bytes']),
    files: number(report['files']),
    seconds: number(report['seconds']),
    goodputBps: number(report['goodput_bps']),
    resumedBytes: number(report['resumed_bytes']) ?? 0,
    unchangedFiles: number(report['unchanged_files']) ?? 0,
    encrypted: typeof report['encrypted'] === 'boolean' ? report['encrypted'] : null,
    verified: verification['verified'] === true,
    hash: text(verification['root']),
    routes: list(report['routes']).map((item): RouteShare => {
      const route = fields(item);
      return {
        route: text(route['route']) ?? '',
        streams: count(route['streams']),
        bytes: number(route['bytes']) ?? 0,
        bps: number(route['bps']) ?? 0,
      };
    }),
    failures,
    failed: number(report['failed']) ?? failures.length,
  };
}
