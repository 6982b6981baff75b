// The rate of a job over time, by route, as the plot takes it: columns of equal length.

import type { Progress } from '../api/types';

/** Samples that are kept; they come about once a second. */
const MAX_SAMPLES = 900;

export class RateSeries {
  /** Seconds since the Unix epoch, ascending. */
  times: number[] = [];
  /** Bits per second of each route; null where the route was not in use. */
  routes = new Map<string, (number | null)[]>();

  add(progress: Progress, now: number): void {
    const last = this.times[this.times.length - 1];
    // The plot wants strictly ascending times.
    if (last !== undefined && now <= last) return;
    const rates = Object.entries(progress.routes_bps ?? {});
    // A copy within one machine has no routes.
    const current = new Map(rates.length > 0 ? rates : [['', progress.bps ?? 0]]);
    for (const route of current.keys()) {
      if (!this.routes.has(route)) this.routes.set(route, this.times.map(() => null));
    }
    this.times.push(now);
    for (const [route, values] of this.routes) values.push(current.get(route) ?? null);
    if (this.times.length <= MAX_SAMPLES) return;
    this.times.shift();
    for (const [route, values] of this.routes) {
      values.shift();
      if (values.every((value) => value === null)) this.routes.delete(route);
    }
  }
}
