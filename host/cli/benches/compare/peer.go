// The peer on etcd's own client: a process that campaigns, resigns and closes as it reads on its
// input, and answers each line with the marks of what happened, in nanoseconds of CLOCK_BOOTTIME.
// peer.rs is the same on Incumbent, and says what the lines mean.
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"strings"
	"sync"

	"go.etcd.io/etcd/clientv3"
	"go.etcd.io/etcd/clientv3/concurrency"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
)

// A term that was won.
type term struct {
	election *concurrency.Election
	elected  int64
}

type peer struct {
	address  string
	ttl      int
	client   *clientv3.Client
	sessions []*concurrency.Session
	terms    chan term
	led      []*concurrency.Election
}

func main() {
	ttl := number(os.Args[2])
	client := connect(os.Args[1])
	sessions := []*concurrency.Session{open(client, ttl)}
	peer := peer{os.Args[1], ttl, client, sessions, make(chan term), nil}
	fmt.Println("ready")
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		switch words[0] {
		case "campaign":
			fmt.Println(peer.campaign(words[1], number(words[2])))
		case "queue":
			fmt.Println(peer.queue(words[1], number(words[2])))
		case "elected":
			marks := peer.elected(number(words[1]))
			fmt.Println(strings.Trim(fmt.Sprint(marks), "[]"))
		case "resign":
			fmt.Println(peer.resign())
		case "close", "drop":
			fmt.Println(peer.close())
		default:
			log.Fatalf("no such command: %s", words[0])
		}
	}
}

// So many elections are on one session. To revoke the lease of 100,000 keys takes etcd minutes, in
// which it does nothing else.
const each = 10_000

// A goroutine for each election, on as few sessions as possible.
func (p *peer) campaign(name string, count int) int64 {
	began := now()
	for len(p.sessions)*each < count {
		p.sessions = append(p.sessions, open(p.client, p.ttl))
	}
	for i := 0; i < count; i++ {
		go p.lead(p.sessions[i/each], fmt.Sprintf("%s-%06d", name, i))
	}
	return began
}

// A client, a session and a goroutine for each candidate of one election.
func (p *peer) queue(name string, count int) int64 {
	began := now()
	var connected sync.WaitGroup
	for i := 0; i < count; i++ {
		connected.Add(1)
		go func() {
			session := open(connect(p.address), p.ttl)
			connected.Done()
			p.lead(session, name+"-000000")
		}()
	}
	connected.Wait()
	return began
}

func (p *peer) lead(session *concurrency.Session, name string) {
	election := concurrency.NewElection(session, name)
	check(election.Campaign(context.Background(), "value"))
	p.terms <- term{election, now()}
}

func (p *peer) elected(count int) (marks []int64) {
	for i := 0; i < count; i++ {
		term := <-p.terms
		marks = append(marks, term.elected)
		p.led = append(p.led, term.election)
	}
	return
}

func (p *peer) resign() int64 {
	began := now()
	for _, election := range p.led {
		check(election.Resign(context.Background()))
	}
	p.led = nil
	return began
}

func (p *peer) close() int64 {
	began := now()
	var closed sync.WaitGroup
	for _, session := range p.sessions {
		closed.Add(1)
		go func(session *concurrency.Session) {
			check(session.Close())
			closed.Done()
		}(session)
	}
	closed.Wait()
	return began
}

func open(client *clientv3.Client, ttl int) *concurrency.Session {
	session, err := concurrency.NewSession(client, concurrency.WithTTL(ttl))
	check(err)
	return session
}

func connect(address string) *clientv3.Client {
	quiet := zap.NewProductionConfig()
	// It warns of each request that it makes again.
	quiet.Level.SetLevel(zap.ErrorLevel)
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   strings.Split(address, ","),
		LogConfig:   &quiet,
		DialOptions: []grpc.DialOption{grpc.WithChainUnaryInterceptor(limited)},
	})
	check(err)
	return client
}

// Without a limit, etcd refuses some of thousands of calls at once: "too many requests".
var underWay = make(chan struct{}, 256)

func limited(
	ctx context.Context, method string, request, reply interface{}, connection *grpc.ClientConn,
	invoke grpc.UnaryInvoker, options ...grpc.CallOption,
) error {
	underWay <- struct{}{}
	defer func() { <-underWay }()
	return invoke(ctx, method, request, reply, connection, options...)
}

func now() int64 {
	var time unix.Timespec
	check(unix.ClockGettime(unix.CLOCK_BOOTTIME, &time))
	return time.Nano()
}

func number(text string) int {
	number, err := strconv.Atoi(text)
	check(err)
	return number
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
