//! Findings about buffers, which bound the data in flight.

use super::{FindingCost, FindingList, Fix, Severity, bytes};

/// The largest window without window scaling (RFC 9293).
const MAX_UNSCALED_WINDOW_BYTES: f64 = 65_535.0;
/// Maximum of the kernel's settings, which are 32-bit numbers.
const MAX_BUFFER_BYTES: f64 = 2_147_483_647.0;
const MIB: f64 = 1_048_576.0;

/// Share of a receive buffer that carries data. The kernel's bookkeeping takes the rest
/// (`tcp_adv_win_scale` 1; newer kernels measure it, and may reach two thirds).
const RECEIVE_SHARE: f64 = 0.5;
/// Share of a send buffer that is in flight. A program with a full buffer is woken when a third of
/// it is free, so between two thirds and all of it is in flight.
const SEND_SHARE: f64 = 0.75;

pub(super) fn check(list: &mut FindingList<'_>) {
    receive(list);
    send(list);
    explicit(list);
    memory(list);
}

/// Returns the buffer size for two bandwidth-delay products, in whole MiB: one for data, and one
/// for bookkeeping or, at the sender, for unsent data.
fn recommended_bytes(list: &FindingList<'_>) -> f64 {
    ((2.0 * list.path.hop().bandwidth_delay_product() / MIB).ceil() * MIB)
        .clamp(MIB, MAX_BUFFER_BYTES)
}

fn raise_ceiling(key: &str, now: [u64; 3], most: f64) -> Fix {
    let [least, first, _] = now;
    let first = (first as f64).min(most);
    let mend = Fix::sysctl(
        &format!("net.ipv4.{key}"),
        format_args!("{least} {first:.0} {most:.0}"),
    );
    if most >= MAX_BUFFER_BYTES {
        return mend.noting(
            "the kernel allows no more: more streams (--streams), or a depot, carry the rest",
        );
    }
    mend
}

fn receive(list: &mut FindingList<'_>) {
    let tcp = &list.facts.tcp;
    let Some(&rmem) = tcp.rmem.known() else {
        return;
    };
    let (path, most) = (list.path, rmem[2] as f64);
    let tuned = tcp.moderate_rcvbuf.known() != Some(&false);
    let at_most = path.hop().window_rate(most * RECEIVE_SHARE);
    let what = format!(
        "tcp_rmem ceiling {}: about half of it holds data that is received",
        bytes(most)
    );
    let mends = vec![raise_ceiling("tcp_rmem", rmem, recommended_bytes(list))];
    list.bound("receive-buffer-ceiling", at_most, what, mends);
    if !tuned {
        let first = rmem[1] as f64;
        let what = format!(
            "tcp_moderate_rcvbuf 0: receive buffers stay at {} and do not grow",
            bytes(first)
        );
        let mends = vec![Fix::sysctl("net.ipv4.tcp_moderate_rcvbuf", 1)];
        list.bound(
            "receive-autotuning-off",
            path.hop().window_rate(first * RECEIVE_SHARE),
            what,
            mends,
        );
    }
    if tcp.window_scaling.known() == Some(&false) {
        let what = format!(
            "tcp_window_scaling 0: no window is larger than {}",
            bytes(MAX_UNSCALED_WINDOW_BYTES)
        );
        let mends = vec![Fix::sysctl("net.ipv4.tcp_window_scaling", 1)];
        list.bound(
            "window-scaling-off",
            path.hop().window_rate(MAX_UNSCALED_WINDOW_BYTES),
            what,
            mends,
        );
    }
}

fn send(list: &mut FindingList<'_>) {
    let Some(&wmem) = list.facts.tcp.wmem.known() else {
        return;
    };
    let most = wmem[2] as f64;
    let what = format!(
        "tcp_wmem ceiling {}: about three quarters of it are under way",
        bytes(most)
    );
    let mends = vec![raise_ceiling("tcp_wmem", wmem, recommended_bytes(list))];
    list.bound(
        "send-buffer-ceiling",
        list.path.hop().window_rate(most * SEND_SHARE),
        what,
        mends,
    );
}

/// Checks the buffers that programs may set themselves. Longhaul leaves buffers to the kernel, so
/// this is about other programs.
fn explicit(list: &mut FindingList<'_>) {
    let tcp = &list.facts.tcp;
    // The kernel doubles the requested size. Of a receive buffer half of that holds data, of a send
    // buffer more.
    let limits = [
        ("rmem_max", tcp.rmem_max.known()),
        ("wmem_max", tcp.wmem_max.known()),
    ];
    let needed = ((list.path.hop().bandwidth_delay_product() / MIB).ceil() * MIB)
        .clamp(MIB, MAX_BUFFER_BYTES);
    for (name, limit) in limits {
        let Some(&limit) = limit else { continue };
        let at_most = list.path.hop().window_rate(limit as f64);
        if at_most < list.path.rate_bps {
            let what = format!(
                "{name} {}: programs that set their own buffers get no more",
                bytes(limit as f64)
            );
            let cost = FindingCost::bound(at_most, list.path);
            let cost = FindingCost {
                text: format!("in a program that sets its own buffers, {}", cost.text),
                ..cost
            };
            let mut mend = Fix::sysctl(&format!("net.core.{name}"), format_args!("{needed:.0}"));
            if tcp.mem.known().is_none() {
                mend = mend.noting(
                    "a setting of the machine, to be changed outside this network namespace",
                );
            }
            let id = if name == "rmem_max" {
                "explicit-receive-buffer"
            } else {
                "explicit-send-buffer"
            };
            list.add(id, Severity::Advice, what, cost, vec![mend]);
        }
    }
}

/// Checks the memory of all TCP connections: above the second number, buffers shrink.
fn memory(list: &mut FindingList<'_>) {
    let tcp = &list.facts.tcp;
    let Some(&mem) = tcp.mem.known() else { return };
    let page = tcp.page_size.max(1) as f64;
    let pressure = mem[1] as f64 * page;
    let needed = 2.0 * list.path.hop().bandwidth_delay_product();
    if pressure < needed {
        let at_most = list.path.hop().window_rate(pressure * RECEIVE_SHARE);
        let pages = (2.0 * needed / page).ceil();
        let what = format!(
            "tcp_mem: all connections together run short of memory above {}",
            bytes(pressure)
        );
        let triple = format!("{:.0} {:.0} {:.0}", pages / 2.0, pages, pages * 2.0);
        let mend = Fix::sysctl("net.ipv4.tcp_mem", triple)
            .noting("at most a quarter of the machine's memory should go there");
        list.bound("tcp-memory", at_most, what, vec![mend]);
    }
}
