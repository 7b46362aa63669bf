//! When a machine wants to be woken, and whether it slept longer than it wanted.
//!
//! * AL-1: while a machine has a deadline it is woken at least once a heartbeat, so a later wake-up means that the whole
//!   process stood still (Ctrl-Z, a debugger, a snapshot), and its deadlines move by the gap.
//! * AL-2: an alarm is asked for again only when an earlier one is needed: most events ask for nothing.

use crate::time::Tick;
use std::time::Duration;

/// The one alarm of a machine.
pub(crate) struct Alarm {
    heartbeat: Duration,
    asked: Option<Tick>,
    last: Tick,
}

impl Alarm {
    pub(crate) fn new(heartbeat: Duration) -> Alarm {
        Alarm { heartbeat, asked: None, last: Tick::ZERO }
    }

    /// Takes another heartbeat over; an alarm that was asked for stays.
    pub(crate) fn set_heartbeat(&mut self, heartbeat: Duration) {
        self.heartbeat = heartbeat;
    }

    /// A step begins. Returns how long the machine stood still, which is nothing as a rule.
    pub(crate) fn on_step(&mut self, now: Tick) -> Duration {
        let late = self.asked.is_some_and(|asked| now > asked + self.heartbeat);
        let gap = if late { now.since(self.last) } else { Duration::ZERO };
        self.last = now;
        self.asked = self.asked.filter(|asked| *asked > now);
        gap
    }

    /// A step ends, and `next` is the nearest deadline. Returns the alarm to ask for, if that is news.
    pub(crate) fn on_settled(&mut self, now: Tick, next: Option<Tick>) -> Option<Tick> {
        let at = next?.min(now + self.heartbeat);
        if self.asked.is_some_and(|asked| asked <= at) {
            return None;
        }
        self.asked = Some(at);
        self.asked
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Tick {
        Tick::ZERO + Duration::from_secs(seconds)
    }

    #[test]
    fn asks_once_and_at_least_every_heartbeat() {
        let mut alarm = Alarm::new(Duration::from_secs(2));
        assert_eq!(alarm.on_settled(at(0), None), None);
        assert_eq!(alarm.on_settled(at(0), Some(at(30))), Some(at(2)), "AL-1");
        assert_eq!(alarm.on_step(at(1)), Duration::ZERO);
        assert_eq!(alarm.on_settled(at(1), Some(at(30))), None, "AL-2");
        assert_eq!(alarm.on_settled(at(1), Some(at(1))), Some(at(1)));
    }

    #[test]
    fn a_late_wake_up_is_a_gap() {
        let mut alarm = Alarm::new(Duration::from_secs(2));
        assert_eq!(alarm.on_step(at(100)), Duration::ZERO, "nothing was asked for");
        alarm.on_settled(at(100), Some(at(130)));
        assert_eq!(alarm.on_step(at(104)), Duration::ZERO, "two seconds late is not yet a stop");
        alarm.on_settled(at(104), Some(at(130)));
        assert_eq!(alarm.on_step(at(160)), Duration::from_secs(56), "AL-1");
    }
}
